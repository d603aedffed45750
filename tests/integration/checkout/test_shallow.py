"""Shallow clones whose history ends where nothing says so, or whose objects are damaged: mended on our side, or named."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.errors import UpdateError
from nedura.installs import InstallPaths, install_id_for
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Origin, git, make_origin
from nedura.update import real
from nedura.update.events import Prepared
from nedura.update.generation.install import install_checkout
from nedura.update.run import Layout, Run
from nedura.update.source.git import Git, find_git
from nedura.update.source.repository import mend_history
from nedura.wire import Event


@attrs.define
class Cut:
    """An install of a clone that is one commit deep."""

    origin: Origin
    source: Path
    home: Path
    layout: Layout
    events: list[Event] = attrs.field(factory=list)

    @property
    def shallow(self) -> Path:
        return self.source / ".git/shallow"

    async def update(self) -> Prepared:
        """Prepare and commit, as an update does."""
        run = Run(
            run_id="test", root_home=self.home, home=self.home, clock=SystemClock(), started_at=SystemClock().time(),
            environ=dict(os.environ), layout=self.layout, product=attrs.evolve(TOY, environment="none"), checkout=self.source,
            install=InstallPaths(self.home, install_id_for(self.source)),
        )  # fmt: skip
        self.events = []
        async for event in real.prepare(run):
            self.events.append(event)
        prepared = next(event for event in self.events if isinstance(event, Prepared))
        run.candidate, run.changed = prepared.candidate, prepared.changed
        self.events += [event async for event in real.commit(run)]
        return prepared

    @property
    def text(self) -> str:
        return "\n".join(event.copy_terminal for event in self.events)


@pytest.fixture(params=["sealed", "checkout"])
def cut(tmp_path: Path, request: pytest.FixtureRequest) -> Cut:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    for number in range(3):
        origin.commit({"toy/number.py": f"N = {number}\n"})
    source = tmp_path / "source"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin.folder}", str(source))
    home = tmp_path / "home"
    if request.param == "sealed":
        install_checkout(source, home, product=attrs.evolve(TOY, environment="none"), python=sys.executable)
    return Cut(origin, source, make_folder(home), request.param)


BROKEN: dict[str, Callable[[Path], object]] = {
    "whole": lambda file: None,
    "gone": lambda file: file.unlink(),
    "empty": lambda file: file.write_text(""),
    "with a commit that is gone": lambda file: file.write_text(file.read_text() + "ab" * 20 + "\n"),
    "with nothing else": lambda file: file.write_text("ab" * 20 + "\n"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_history_that_is_cut_anywhere_is_updated(cut: Cut, name: str) -> None:
    BROKEN[name](cut.shallow)
    before = cut.shallow.read_bytes() if cut.shallow.exists() else None
    wanted = cut.origin.commit({"toy/value.py": "VALUE = 5\n"})
    prepared = await cut.update()
    assert (prepared.changed, prepared.candidate.target) == (True, wanted)
    assert "rewritten" not in cut.text, "a lost file is no rewritten history"
    if cut.layout == "sealed":
        assert (cut.shallow.read_bytes() if cut.shallow.exists() else None) == before, (
            "the owner's file is not ours to mend"
        )


async def test_rubbish_in_the_owners_file_never_reaches_our_repository(cut: Cut) -> None:
    """One bad line ends every git command that reads it; in ours it would stay for ever."""
    cut.shallow.write_text(cut.shallow.read_text() + "what\n")
    wanted = cut.origin.commit({"toy/value.py": "VALUE = 5\n"})
    if cut.layout == "checkout":
        with pytest.raises(UpdateError, match="bad shallow line") as caught:
            await cut.update()
        assert caught.value.stop_class == "checkout_move_failed"
        cut.shallow.write_text(cut.shallow.read_text().replace("what\n", ""))
    assert (await cut.update()).candidate.target == wanted


async def test_damaged_objects_are_called_that(cut: Cut) -> None:
    for pack in (cut.source / ".git/objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 0xFF
        pack.write_bytes(data)
    cut.origin.commit({"toy/value.py": "VALUE = 5\n"})
    with pytest.raises(UpdateError) as caught:
        await cut.update()
    assert caught.value.stop_class == "broken_objects"
    assert "git fsck" in caught.value.advice


def test_the_end_of_a_history_is_found_at_any_depth(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    for number in range(12):
        origin.commit({"toy/number.py": f"N = {number}\n"})
    git(tmp_path, "clone", "-q", "--bare", "--depth", "7", f"file://{origin.folder}", str(tmp_path / "r.git"))
    shallow = tmp_path / "r.git/shallow"
    known = shallow.read_bytes()
    repo = Git(program=find_git(os.environ), repo=tmp_path / "r.git")
    assert mend_history(repo, [origin.head]) == 1, "the known end is found again"
    shallow.unlink()
    assert mend_history(repo, [origin.head]) == 1
    assert shallow.read_bytes() == known
    whole = Git(program=find_git(os.environ), repo=origin.folder / ".git")
    assert mend_history(whole, [origin.head]) == 0
    assert not (origin.folder / ".git/shallow").exists()
