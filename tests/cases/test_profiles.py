"""Field reports of area `profiles`, by their ids."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nedura.errors import StoreError
from nedura.homes import current_home, home_for_profile, home_override
from nedura.profile_change import delete_profile
from nedura.profile_env import TRUSTED, parse_env, profile_environment, read_env
from nedura.profile_flag import find_flag, select
from nedura.profiles import create_profile, list_profiles, stray_profiles, tombstone
from nedura.records import write_json
from nedura.wrappers import find_wrappers, make_wrapper
from nedura_cli.tables import cells, table

ROOT = Path(__file__).resolve().parents[2]


def nedura(home: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli", *argv],
        env={**os.environ, "NEDURA_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        create_profile(tmp_path, name)
    return tmp_path


# --- C156: variables of one profile in the child of another


def stub_tool(environ: dict[str, str]) -> dict[str, str]:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


def test_c156_a_childs_environment_is_its_own_profiles(root: Path) -> None:
    (root / "profiles" / "b" / ".env").write_text("OTHER=2\n")
    parent = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/h",
        "NEDURA_HOME": str(root),
        "BOT_TOKEN": "A",
        "NEDURA_SUPERVISED_CHILD": "1",
    }
    seen = stub_tool(profile_environment(root / "profiles" / "b", parent))
    assert seen["NEDURA_HOME"] == f"{root}/profiles/b"
    assert seen["OTHER"] == "2"
    assert "BOT_TOKEN" not in seen
    assert "NEDURA_SUPERVISED_CHILD" not in seen
    (root / "profiles" / "b" / ".env").write_text("BOT_TOKEN='B'\n")
    assert stub_tool(profile_environment(root / "profiles" / "b", parent))["BOT_TOKEN"] == "B"


async def test_c156_each_activity_has_its_own_home_and_the_environment_stays(root: Path) -> None:
    before = dict(os.environ)

    async def request(name: str) -> Path:
        with home_override(home_for_profile(root, name)):
            await asyncio.sleep(0.01)
            return current_home()

    found = await asyncio.gather(*(request(name) for name in ("a", "b", "default")))
    assert found == [root / "profiles" / "a", root / "profiles" / "b", root]
    assert dict(os.environ) == before


TRUST_NAMES = (
    "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "NEDURA_HOME", "NEDURA_CA_BUNDLE", "NEDURA_PORTAL_BASE_URL", "LD_PRELOAD",
    "PYTHONPATH", "GIT_SSH_COMMAND", "NEDURA_SHARED_AUTH_DIR", "PATH", "NOUS_INFERENCE_BASE_URL",
)  # fmt: skip


@pytest.mark.parametrize("name", TRUST_NAMES)
def test_c156_a_profiles_file_never_says_whom_to_trust(root: Path, name: str) -> None:
    (root / ".env").write_text(f"{name}=evil\nOK=1\n")
    assert TRUSTED.fullmatch(name)
    assert read_env(root) == {"OK": "1"}
    assert profile_environment(root, {"PATH": "/usr/bin", name: "good"}).get(name) != "evil"


def test_c156_lines_are_taken_as_they_are() -> None:
    text = "# no\nA=1\nexport B='x y'\nC=\"$HOME\"\nD=v # note\nE=a#b\nbad line\n1X=2\n=3\nF=\n"
    assert parse_env(text) == {"A": "1", "B": "x y", "C": "$HOME", "D": "v", "E": "a#b", "F": ""}


# --- C158: deleting under a running gateway


class Ticking:
    """A toy gateway with a tick that writes into its home until it is stopped."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.order: list[str] = []
        self.failed = ""
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            try:
                (self.home / "logs").mkdir(exist_ok=True)
                write_json(self.home / "tick.json", {"n": 1})
            except (StoreError, OSError) as error:
                self.failed = str(error)
            await asyncio.sleep(0.001)

    async def disable(self, home: Path) -> None:
        assert home == self.home
        self.order.append("service")

    async def stop(self, home: Path) -> bool:
        self.order.append("stop")
        return True  # it claims to be gone, and its last tick is still on the way

    def end(self) -> None:
        self._task.cancel()


async def test_c158_service_first_then_tombstone_and_late_writers_bring_nothing_back(root: Path) -> None:
    home = root / "profiles" / "b"
    (root / "mine").write_text("default's own")
    toy = Ticking(home)
    await asyncio.sleep(0.01)
    await delete_profile(root, "b", runtimes=toy)
    await asyncio.sleep(0.05)
    toy.end()
    assert toy.order == ["service", "stop"]
    assert toy.failed
    assert not home.exists()
    assert tombstone(root, "b").exists()
    assert (root / "mine").read_text() == "default's own"
    assert [profile.name for profile in list_profiles(root)] == ["default", "a"]


def test_c158_a_delete_from_inside_the_profile_hits_only_it(root: Path) -> None:
    done = nedura(root / "profiles" / "b", "profile", "delete", "b", "--yes")
    assert done.returncode == 0, done.stderr
    assert not (root / "profiles" / "b").exists()
    assert (root / "profiles" / "a").is_dir()


# --- C160: a --profile that belongs to a subcommand


@pytest.mark.parametrize(
    ("argv", "taken"),
    [
        (["browser", "open", "--profile", "Default"], None),
        (["tool", "run", "--", "--profile", "x"], None),
        (["tool", "--", "-p", "x"], None),
        (["-p", "b", "tool", "run", "--profile", "x"], "b"),
        (["--profile=b", "browser", "open", "--profile", "Default"], "b"),
        (["fleet", "status", "-p", "b"], "b"),
        (["fleet", "status", "--", "-p", "b"], None),
    ],
)
def test_c160_only_our_own_flag_counts(argv: list[str], taken: str | None) -> None:
    def own(tokens: Sequence[str]) -> frozenset[str] | None:
        return {"tool": frozenset({"--profile"}), "fleet": frozenset[str]()}.get(tokens[0])

    found = find_flag(argv, own)
    assert (found[0] if found else None) == taken


def test_c160_on_the_real_command_line(root: Path) -> None:
    (root / "profiles" / "x").mkdir()
    done = nedura(root, "browser", "open", "--profile", "x")
    assert done.returncode == 2
    assert "'browser'" in done.stderr
    assert (
        select(
            ["fleet", "explain", "--", "-p", "x"], {"NEDURA_HOME": str(root)}, lambda tokens: frozenset()
        ).home
        == root
    )


# --- C161: strange things in the profiles folder


def test_c161_stray_entries_are_named_once_and_never_taken_for_installs(root: Path) -> None:
    profiles = root / "profiles"
    for name in ("default", "0", ".tmp", "Alpha"):
        (profiles / name).mkdir()
    (profiles / "README").write_text("x")
    (profiles / "x").symlink_to("nowhere")
    assert [profile.name for profile in list_profiles(root)] == ["default", "0", "a", "b"]
    assert list_profiles(root)[0].home == root
    assert {stray.name for stray in stray_profiles(root)} == {"default", "Alpha", "README", "x"}
    done = nedura(root, "profile", "list")
    assert done.returncode == 0
    for name in ("default", "Alpha", "README", "x"):
        assert done.stderr.count(f"not a profile: {name} ") == 1
    plan = nedura(root, "update", "--plan", "--json")
    assert plan.returncode == 0, plan.stderr
    assert f"{profiles}/default" not in plan.stdout


# --- C164: the printed table


def test_c164_two_blanks_always_and_wide_characters_count_twice(root: Path) -> None:
    rows = [("x" * 40, "模型 名", "y"), ("a", "b", "c")]
    lines = list(table(("name", "model", "z"), rows))
    assert len({cells(line[: line.rindex("  ")]) for line in lines[1:]}) <= 2
    for line in lines:
        assert "  " in line
    assert lines[1].split("  ") == ["x" * 40, "模型 名", "y"]


def test_c164_the_json_form_is_stable(root: Path) -> None:
    create_profile(root, "n" * 40)
    record = json.loads(nedura(root, "profile", "list", "--json").stdout)
    assert record["kind"] == "profiles"
    assert [profile["name"] for profile in record["profiles"]] == ["default", "a", "b", "n" * 40]
    assert set(record["profiles"][0]) == {"name", "home", "sticky", "display_name", "description", "active"}


# --- C190: listing must not read huge programs


def test_c190_wrappers_are_found_without_reading_programs(clean_environment: Path) -> None:
    import time

    folder = clean_environment / ".local" / "bin"
    folder.mkdir(parents=True)
    with (folder / "huge").open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    for number in range(500):
        (folder / f"l{number}").symlink_to("huge")
    os.mkfifo(folder / "pipe")
    make_wrapper("ops", "ops", Path("/opt/nedura"))
    start = time.monotonic()
    assert [wrapper.alias for wrapper in find_wrappers()] == ["ops"]
    assert time.monotonic() - start < 0.5
