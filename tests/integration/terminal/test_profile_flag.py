"""Which profile a command line means: the tables of facts/runtime.md 6.4 and 6.5."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.commands import build_parser, own_flags, value_flags
from nedura.errors import NeduraError, ProfileError
from nedura.homes import current_home, home_override, process_home, profile_name, root_home
from nedura.profile_flag import find_flag, select
from nedura.top_options import VALUE_FLAGS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root home with profiles coder, ops, work and 8080."""
    for name in ("coder", "ops", "work", "8080"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    return tmp_path


def own(tokens: Sequence[str]) -> frozenset[str] | None:
    """A grammar with `profile list` (nothing of its own) and `tool run --profile` (its own)."""
    known = {"profile": frozenset[str](), "chat": frozenset({"-q"}), "tool": frozenset({"--profile"})}
    return known.get(tokens[0])


@pytest.mark.parametrize(
    ("argv", "env", "sticky", "want"),
    [
        (["chat", "-p", "coder", "-q", "hi"], "", "", "coder"),
        (["-p", "Work", "chat"], "", "", "work"),
        (["-p", " CODER ", "chat"], "", "", "coder"),
        (["-p", "no:xdist"], "", "", "default"),
        (["profile", "x", "-p", "8080"], "", "", "8080"),
        (["mcp", "add", "x", "--args", "docker", "--profile", "coder"], "", "", "default"),
        (["--", "-p", "coder"], "", "", "default"),
        (["-m", "-p", "chat"], "", "", "default"),
        (["--model", "-p", "-p", "coder"], "", "", "coder"),
        (["--profile=default"], "", "coder", "default"),
        (["--profile=DEFAULT"], "", "coder", "default"),
        (["-p=coder"], "", "", "coder"),
        (["profile", "list", "--profile=coder"], "", "", "coder"),
        ([], "profiles/ops", "coder", "ops"),
        ([], "", "coder", "coder"),
        ([], "", "default", "default"),
        ([], "", "../ops", "default"),
        (["-p", "coder"], "profiles/ops", "", "coder"),
        (["-p"], "", "", "default"),
        (["-p", "coder", "-p", "ops"], "", "", "coder"),
    ],
)
def test_the_table(root: Path, argv: list[str], env: str, sticky: str, want: str) -> None:
    if sticky:
        (root / "active_profile").write_text(sticky + "\n")
    found = select(argv, {"NEDURA_HOME": str(root / env)}, own)
    assert found.home == (root if want == "default" else root / "profiles" / want)


def test_the_flag_is_taken_out_of_the_command_line(root: Path) -> None:
    found = select(["-v", "-p", "coder", "profile", "list"], {"NEDURA_HOME": str(root)}, own)
    assert found.argv == ["-v", "profile", "list"]
    assert found.explicit
    assert found.profile == "coder"


@pytest.mark.parametrize(
    "argv", [["-p", "Work Bot", "chat"], ["-p", ""], ["--profile=../x"], ["-p", "a" * 65], ["-p", "_x"]]
)
def test_an_impossible_name_is_exit_2(root: Path, argv: list[str]) -> None:
    with pytest.raises(ProfileError) as caught:
        select(argv, {"NEDURA_HOME": str(root)}, own)
    assert caught.value.exit_code == 2


def test_a_profile_that_is_not_there_is_exit_1_and_is_not_made(root: Path) -> None:
    with pytest.raises(NeduraError) as caught:
        select(["-p", "gone"], {"NEDURA_HOME": str(root)}, own)
    assert caught.value.exit_code == 1
    assert not (root / "profiles" / "gone").exists()


@pytest.mark.parametrize(
    ("argv", "environ", "follows"),
    [
        ([], {}, True),
        ([], {"NEDURA_SUPERVISED_CHILD": "1"}, False),
        (["gateway", "run"], {"INVOCATION_ID": "abc"}, False),
        (["-v", "gateway"], {"INVOCATION_ID": "abc"}, False),
        (["update"], {"INVOCATION_ID": "abc"}, True),
        (["gateway", "run"], {}, True),
    ],
)
def test_supervised_children_never_follow_the_sticky_profile(
    root: Path, argv: list[str], environ: dict[str, str], follows: bool
) -> None:
    (root / "active_profile").write_text("coder\n")
    found = select(argv, {"NEDURA_HOME": str(root), **environ}, own)
    assert found.home == (root / "profiles" / "coder" if follows else root)


def test_an_unreadable_sticky_file_is_none(root: Path) -> None:
    (root / "active_profile").mkdir()
    assert select([], {"NEDURA_HOME": str(root)}).home == root


def test_a_sticky_profile_that_is_gone_says_how_to_choose_another(root: Path) -> None:
    (root / "active_profile").write_text("lost\n")
    with pytest.raises(NeduraError, match="lost") as caught:
        select([], {"NEDURA_HOME": str(root)})
    assert "profile use" in caught.value.advice
    assert select(["-p", "default"], {"NEDURA_HOME": str(root)}).home == root


def test_the_value_flags_are_those_of_the_parser() -> None:
    assert value_flags() == VALUE_FLAGS
    assert {"-p", "--profile", "-m", "-z", "-c"} <= VALUE_FLAGS
    assert not {"-v", "--plain", "--version"} & VALUE_FLAGS


def test_the_real_grammar_takes_the_flag_behind_its_own_commands_only() -> None:
    build_parser()
    assert find_flag(["fleet", "status", "-p", "coder"], own_flags) == ("coder", 2, 4)
    assert find_flag(["browser", "open", "--profile", "Default"], own_flags) is None


@given(
    st.lists(
        st.sampled_from(
            ["-p", "--profile", "coder", "-m", "--", "x", "--profile=ops", "-v", "-c", "--oneshot=a"]
        )
    )
)
def test_nothing_behind_a_double_dash_is_ever_taken(argv: list[str]) -> None:
    found = find_flag(argv, lambda tokens: frozenset())
    if "--" in argv and found is not None:
        value, start, end = found
        taken = argv[start:end]
        assert taken in ([argv[start]], ["-p", value], ["--profile", value])
        assert "--" not in argv[:start] or argv[argv.index("--") - 1] in VALUE_FLAGS


# --- homes (6.5)


def test_the_order_is_context_environment_native(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert process_home(environ) == tmp_path / ".nedura"
    assert process_home({**environ, "NEDURA_HOME": "/opt/data"}) == Path("/opt/data")
    assert process_home({**environ, "NEDURA_HOME": "  "}) == tmp_path / ".nedura"
    with home_override(tmp_path / "other"):
        assert current_home({**environ, "NEDURA_HOME": "/opt/data"}) == tmp_path / "other"
    assert current_home({**environ, "NEDURA_HOME": "/opt/data"}) == Path("/opt/data")


@pytest.mark.parametrize(
    ("home", "root", "name"),
    [
        ("~/.nedura", "~/.nedura", "default"),
        ("~/.nedura/profiles/ops", "~/.nedura", "ops"),
        ("~/.nedura/sandbox", "~/.nedura", "custom"),
        ("/opt/data", "/opt/data", "default"),
        ("/opt/data/profiles/ops", "/opt/data", "ops"),
        ("/srv/profiles", "/srv/profiles", "default"),
        ("/srv/profiles/profiles/x", "/srv/profiles", "x"),
    ],
)
def test_the_root_of_a_home(tmp_path: Path, home: str, root: str, name: str) -> None:
    environ = {"HOME": str(tmp_path)}
    there, base = (Path(text.replace("~", str(tmp_path))) for text in (home, root))
    assert root_home(there, environ) == base
    assert profile_name(there, root_home(there, environ)) == name


# --- the real program

PROBE = """
import sys
from nedura.profile_flag import select
before = {m for m in sys.modules if m.split('.')[0].startswith('nedura')}
select(['-p', 'coder', 'update'])
after = {m for m in sys.modules if m.split('.')[0].startswith('nedura')}
print(sorted(after))
"""


def test_no_other_module_of_ours_is_loaded_when_the_home_is_decided(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "NEDURA_HOME": str(root)},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.strip() == str(
        ["nedura", "nedura._lazy", "nedura._version", "nedura.errors", "nedura.homes", "nedura.profile_flag", "nedura.top_options"]
    )  # fmt: skip


def run(root: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli", *argv],
        env={**os.environ, "NEDURA_HOME": str(root), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_command_runs_on_the_chosen_home(root: Path) -> None:
    done = run(root, "--version", "-v", "-p", "coder")
    assert f"home        {root}/profiles/coder" in done.stdout, done.stderr


def test_a_bad_name_is_one_clear_line(root: Path) -> None:
    done = run(root, "-p", "Work Bot", "fleet")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "profile name" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_typo_gets_a_suggestion_and_json_gets_an_error_record(root: Path) -> None:
    done = run(root, "flet", "--json")
    assert done.returncode == 2
    assert "did you mean 'fleet'" in done.stderr
    assert done.stdout.startswith('{"kind":"error","code":"usage"')


def test_the_version_is_printed_and_nothing_else_is_imported(root: Path) -> None:
    done = run(root, "--version")
    assert done.stdout.startswith("nedura ")
    assert done.returncode == 0
    code = (
        "import sys; sys.argv = ['nedura', '--version']; import nedura_cli.main as m; m.main(); "
        "print(sorted(x for x in sys.modules if x.startswith('nedura') or x == 'argparse'))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    # streams: mended before the first word is written; of the standard library alone, and it reads no home
    assert out.splitlines()[1] == str(
        ["nedura", "nedura._lazy", "nedura._version", "nedura.streams", "nedura_cli", "nedura_cli.main"]
    )
