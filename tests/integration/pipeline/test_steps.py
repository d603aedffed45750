"""Every follow-up of the tail, forced for real: one line, the receipt, what stays armed, exit 0, and the next run that clears it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from functools import reduce
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.clock import iso
from nedura.config import read_config, set_value
from nedura.errors import UpdateError
from nedura.fleet.supervisors.windows import PauseToken, ResumeStep
from nedura.installs import InstallPaths
from nedura.product import NEDURA, Build, Product
from nedura.testing.installs import git, make_origin
from nedura.update.completion.bytecode import FINGERPRINT
from nedura.update.completion.checkout_launcher import publish_checkout_launcher
from nedura.update.completion.completion_parts import CompletionParts
from nedura.update.completion.request import CompletionRequest
from nedura.update.completion.second_half import Completion
from nedura.update.completion.upkeep import upkeep
from nedura.update.events import FollowUp
from nedura.update.generation.launcher import launcher_install
from nedura.update.ledger.receipt import apply, opened
from nedura.update.source.channels import channel_key
from nedura.update.source.repository import open_repository
from nedura.wire import Event, to_wire
from tests.kits.pipeline import INSTALL_ID, NEW, OLD, ToyFleet


@attrs.define
class Starts:
    """Starts what it is told to; `broken` names what does not start."""

    broken: set[str] = attrs.field(factory=set)
    started: list[str] = attrs.field(factory=list)

    async def running(self) -> Collection[str]:
        return ()

    async def autostart(self) -> bool:
        return False

    async def start(self, step: ResumeStep) -> None:
        if step.name in self.broken:
            raise UpdateError("it is disabled", stop_class="windows_resume")
        self.started.append(step.name)


@attrs.define
class Desk:
    """One home, and completions of it with the real steps.

    Attributes:
        home: root home.
        tree: the checkout.
        layout: whose steps run.
    """

    home: Path
    tree: Path
    layout: str = "checkout"
    product: Product = NEDURA
    starter: Starts = attrs.field(factory=Starts)
    sha: str = NEW.code_sha

    @property
    def state(self) -> Path:
        return InstallPaths(self.home, INSTALL_ID).folder

    async def run(self, **request: Any) -> Done:
        completion = Completion(
            request=CompletionRequest(
                update_id="run",
                nonce="n",
                source=str(self.tree),
                root_home=str(self.home),
                home=str(self.home),
                install_id=INSTALL_ID,
                layout=self.layout,
                before=OLD,
                expected=attrs.evolve(NEW, code_sha=self.sha),
                first_member=False,
                **request,
            ),
            product=self.product,
            parts=CompletionParts(fleet=ToyFleet(), upkeep=upkeep, starter=self.starter),
            environ={**os.environ, "NEDURA_GATEWAY_LOCK_DIR": str(self.home / "locks")},
        )
        completion.tail.arm()
        events = [event async for event in completion.events()]
        events.append(completion.finished())
        records = [{**to_wire(event), "at": iso(0)} for event in events]
        return Done(completion, events, reduce(apply, records, opened()))


@attrs.frozen
class Done:
    """How a completion ended."""

    completion: Completion
    events: list[Event]
    receipt: dict[str, Any]

    def owes(self, step: str, *words: str) -> None:
        """One line, one row of the receipt, the tail armed, exit 0."""
        told = [event for event in self.events if isinstance(event, FollowUp)]
        assert [event.step for event in told] == [step]
        (row,) = self.receipt["followups"]
        assert row["step"] == step
        assert all(word in row["reason"] for word in words), row
        line = told[0].copy_terminal
        assert line.startswith(f"⚠ Update follow-up '{step}'")
        assert "\n" not in line
        assert self.completion.tail.is_armed()
        assert (self.receipt["outcome"], self.receipt["exit_code"]) == ("success", 0)

    def clean(self) -> None:
        """Nothing is owed any more."""
        assert self.receipt["followups"] == []
        assert not self.completion.tail.is_armed()
        assert self.receipt["exit_code"] == 0

    def steps(self) -> dict[str, str]:
        return {row["name"]: row["detail"] for row in self.receipt["steps"]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    home, tree = tmp_path / "home", tmp_path / "tree"
    (home / "profiles" / "alpha").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    tree.mkdir()
    return Desk(home, tree)


async def test_config_migration(desk: Desk) -> None:
    bad, good = desk.home / "profiles/alpha/config.yaml", desk.home / "config.yaml"
    bad.write_text("config_version: soon\nmine: 1\n")
    good.write_text("# mine\nmodel: {default: x/y}\n")
    (await desk.run()).owes("config_migration", "profile alpha", "config_version")
    assert good.read_text() == "# mine\nmodel: {default: x/y}\nconfig_version: 1\n", "the others went on"
    bad.write_text("mine: 1\n")
    done = await desk.run()
    done.clean()
    assert done.steps()["config_migration"] == "alpha: numbered"
    assert bad.read_text() == "mine: 1\nconfig_version: 1\n"
    assert "config_migration" not in (await desk.run()).steps()


async def test_profile_sync(desk: Desk) -> None:
    alpha = desk.home / "profiles/alpha"
    (alpha / ".env").write_text("TOKEN=x\n")
    (alpha / ".env").chmod(0o644)
    blocked = desk.home / "profiles/beta"
    blocked.mkdir(mode=0o700)
    (blocked / "skills").write_text("mine")
    (await desk.run()).owes("profile_sync", "profile beta", "skills is a file")
    assert (alpha / ".env").stat().st_mode & 0o777 == 0o600
    assert (alpha / ".env").read_text() == "TOKEN=x\n"
    assert (alpha / "skills").is_dir()
    assert (blocked / "skills").read_text() == "mine"
    (blocked / "skills").unlink()
    done = await desk.run()
    done.clean()
    assert (blocked / ".env").stat().st_mode & 0o777 == 0o600
    assert "profile_sync" not in (await desk.run()).steps()


async def test_what_is_there_stays_links_of_the_owner_included(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/env").write_text("A=1\n")
    (tmp_path / "dotfiles/env").chmod(0o644)
    os.symlink(tmp_path / "dotfiles", desk.home / "skills")
    os.symlink(tmp_path / "dotfiles/env", desk.home / ".env")
    (await desk.run()).clean()
    assert (desk.home / "skills").is_symlink()
    assert (tmp_path / "dotfiles/env").stat().st_mode & 0o777 == 0o644


def compiled(tree: Path, name: str) -> Path:
    place = tree / "pkg/__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"old")
    return place


async def test_bytecode(desk: Desk) -> None:
    gone = compiled(desk.tree, "gone")
    desk.state.mkdir(parents=True, mode=0o700)
    (desk.state / FINGERPRINT).mkdir()
    (await desk.run()).owes("bytecode", FINGERPRINT)
    assert gone.exists()
    (desk.state / FINGERPRINT).rmdir()
    done = await desk.run()
    done.clean()
    assert done.steps()["bytecode"] == "1 old file removed"
    assert not gone.exists()
    again = compiled(desk.tree, "again")
    assert "bytecode" not in (await desk.run()).steps(), "stamped: this version was swept"
    assert again.exists()
    desk.sha = "c" * 40
    assert (await desk.run()).steps()["bytecode"] == "1 old file removed"


async def test_a_sealed_install_has_no_bytecode_or_build_step(desk: Desk) -> None:
    desk.layout = "sealed"
    desk.product = attrs.evolve(NEDURA, builds=(WEB,))
    old = compiled(desk.tree, "old")
    done = await desk.run()
    done.clean()
    assert old.exists()
    assert not {"bytecode", "build web"} & set(done.steps())
    assert not (desk.state / FINGERPRINT).exists()


WEB = Build(name="web", command=("/bin/sh", "make.sh"), inputs=("make.sh",), artifact="web/dist", timeout=20)


async def test_build_in_a_checkout(desk: Desk, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin", {"make.sh": "echo no disk >&2; exit 3\n"})
    desk.tree = origin.clone(tmp_path / "source")
    paths = InstallPaths(desk.home, INSTALL_ID)
    paths.folder.mkdir(parents=True, mode=0o700)

    def fetch() -> None:
        repo = open_repository(paths, None)
        git(repo.repo, "fetch", "-q", str(origin.folder), "main")
        git(desk.tree, "pull", "-q")
        desk.sha = origin.head

    fetch()
    desk.product = attrs.evolve(NEDURA, builds=(WEB,))
    artifact = desk.tree / "web/dist"
    artifact.mkdir(parents=True)
    (artifact / "page").write_text("old")
    (await desk.run()).owes("build", "web", "exit 3", "no disk")
    assert (artifact / "page").read_text() == "old", "a failed build leaves the artifact"
    origin.commit({"make.sh": "mkdir -p web/dist; echo new > web/dist/page; echo x > side\n"})
    fetch()
    done = await desk.run()
    done.clean()
    assert "build web" in done.steps()
    assert (artifact / "page").read_text() == "new\n"
    assert not (desk.tree / "side").exists(), "a build writes into a copy"
    assert [path.name for path in (desk.tree / "web").iterdir()] == ["dist"]
    assert "build web" not in (await desk.run()).steps(), "its inputs are the same"


async def test_a_failed_build_with_a_stamp_stays_wanted(desk: Desk, tmp_path: Path) -> None:
    """Artifact and stamp are lost, the failed try is remembered (#90495)."""
    app = attrs.evolve(WEB, stamp="app.json")
    origin = make_origin(tmp_path / "origin", {"make.sh": "exit 3\n"})
    desk.tree, desk.sha = origin.clone(tmp_path / "source"), origin.head
    paths = InstallPaths(desk.home, INSTALL_ID)
    paths.folder.mkdir(parents=True, mode=0o700)
    git(open_repository(paths, None).repo, "fetch", "-q", str(origin.folder), "main")
    desk.product = attrs.evolve(NEDURA, builds=(app,))
    assert (await desk.run()).receipt["followups"] == [], "an install that never had it gets none"
    (await desk.run(notes={"builds": ["web"]})).owes("build", "exit 3")
    (await desk.run()).owes("build", "exit 3")


async def test_launchers_in_a_checkout(desk: Desk) -> None:
    in_the_way = desk.home / "bin/nedura"
    in_the_way.mkdir(parents=True)
    (await desk.run()).owes("launchers", "nedura")
    in_the_way.rmdir()
    (await desk.run()).clean()


@pytest.mark.parametrize("inside", [True, False])
def test_a_checkouts_launcher_stands_only_where_its_python_finds_the_checkout(
    desk: Desk, inside: bool
) -> None:
    """The stand-in for the owner's Python answers the question where the code lies, and shows what it is started with."""
    place = (desk.tree if inside else desk.home) / "nedura_cli/main.py"
    place.parent.mkdir(parents=True)
    place.write_text("raise SystemExit(program())\n")
    python = desk.home / "python"
    python.write_text(f'#!/bin/sh\n[ "$3" = -c ] && echo {place} && exit\necho "$NEDURA_HOME" "$@"\n')
    python.chmod(0o755)
    paths = InstallPaths(desk.home, INSTALL_ID)
    paths.folder.mkdir(parents=True, mode=0o700)
    why = publish_checkout_launcher(paths, NEDURA, desk.tree, str(python), os.environ)
    launcher = paths.launcher()
    assert (why == "") is inside
    assert launcher.exists() is inside
    if inside:
        done = subprocess.run(
            [launcher, "a b"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{desk.home} -P -B -m nedura_cli.main a b\n"
        assert launcher_install(paths, "nedura") == INSTALL_ID


async def test_another_installs_launcher_stays(desk: Desk) -> None:
    launcher = desk.home / "bin/nedura"
    launcher.parent.mkdir(mode=0o700)
    launcher.write_text("#!/bin/sh\n# nedura launcher of install ffffffffffff\n")
    done = await desk.run()
    done.clean()
    assert "ffffffffffff" in launcher.read_text()
    assert any(
        row["name"] == "launchers" and "ffffffffffff" in row["reason"] for row in done.receipt["skips"]
    )


async def test_channel(desk: Desk) -> None:
    desk.product = attrs.evolve(NEDURA, retired_channels=(("nightly", "beta"), ("beta", "canary")))
    config = desk.home / "config.yaml"
    text = f"update:\n  installs:\n    {INSTALL_ID}:\n      channel: nightly # mine\n"
    config.write_text(text)
    broken = {"original": "nightly", "destination": "no-such"}
    (await desk.run(channel_retirement=broken)).owes("channel", "no-such")
    assert "channel: nightly" in config.read_text()
    done = await desk.run()
    done.clean()
    assert read_config(desk.home).get(channel_key(INSTALL_ID)) == "canary"
    assert "# mine" in config.read_text()
    assert done.steps()["channel"] == "nightly was retired, following canary"
    assert "channel" not in (await desk.run()).steps()


async def test_a_choice_that_was_made_meanwhile_is_kept(desk: Desk) -> None:
    from nedura.config import edit_config

    edit_config(desk.home, lambda data: set_value(data, channel_key(INSTALL_ID), "stable"))
    (await desk.run(channel_retirement={"original": "nightly", "destination": "canary"})).clean()
    assert read_config(desk.home).get(channel_key(INSTALL_ID)) == "stable"


TOKEN = PauseToken(resume_needed=True, profiles={"default": 40, "alpha": 44})


async def test_windows_resume(desk: Desk) -> None:
    desk.starter.broken = {"alpha"}
    done = await desk.run(windows_resume=TOKEN.wire())
    done.owes("windows_resume", "alpha: it is disabled")
    assert desk.starter.started == ["default"]
    left = PauseToken.parse(done.completion.windows_resume)
    assert dict(left.profiles) == {"alpha": 44}, "the parent must not start the others again"
    desk.starter.broken = set()
    done = await desk.run()
    done.clean()
    assert desk.starter.started == ["default", "alpha"], "the rest, from what was left on disk"
    assert "windows_resume" not in (await desk.run()).steps()


async def test_without_a_token_nothing_is_resumed(desk: Desk) -> None:
    done = await desk.run()
    done.clean()
    assert done.completion.windows_resume is None


async def test_what_the_package_step_said_is_in_the_receipt(desk: Desk) -> None:
    refused = {"ok": False, "reason": "UpdateError: no wheel", "stop_class": "dependencies", "advice": "ask"}
    done = await desk.run(notes={"pm_receipt": refused})
    done.owes("dependencies", "no wheel")
    assert done.receipt["pm_refusal"] == {
        "reason": "UpdateError: no wheel",
        "stop_class": "dependencies",
        "advice": "ask",
    }
    answer = {
        "hash": "ab12",
        "built": True,
        "tool": "uv",
        "seconds": 1.5,
        "packages": {"attrs": "25.1"},
        "dropped": ["PIP_X"],
    }
    done = await desk.run(notes={"pm_receipt": answer})
    done.clean()
    assert done.receipt["pm_environment"] == {
        "ok": True, "hash": "ab12", "built": True, "tool": "uv", "seconds": 1.5,
    }  # fmt: skip
    assert done.receipt["pm_packages"] == {"attrs": "25.1"}
    assert done.receipt["pm_dropped_variables"] == ["PIP_X"]
    assert "pm_refusal" not in done.receipt
