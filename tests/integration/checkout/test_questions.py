"""What an update asks: the person who watches, or a chat through files; nobody there means the safe default."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import attrs
import pytest

from nedura.clock import SystemClock
from nedura.installs import InstallPaths, install_id_for
from nedura.records import make_folder
from nedura.testing.installs import TOY, TOY_FILES, Origin, git, make_origin
from nedura.update import UpdateOptions, answer_prompt, pending_prompt, real
from nedura.update.events import Prepared
from nedura.update.generation.install import install_checkout
from nedura.update.generation.record import read_record
from nedura.update.prompt import Ask
from nedura.update.run import Layout, Run
from nedura.wire import Event


@attrs.define
class Asked:
    """An install, who is asked, and what was asked."""

    origin: Origin
    source: Path
    home: Path
    answer: str | None = None
    questions: list[tuple[str, str]] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)

    async def ask(self, question: str, default: str) -> str:
        self.questions.append((question, default))
        return self.answer or ""

    @property
    def paths(self) -> InstallPaths:
        return InstallPaths(self.home, install_id_for(self.source))

    async def update(self, layout: Layout, *, watched: bool = True, **options: object) -> Run:
        """Prepare and commit, as an update does."""
        ask: Ask | None = self.ask if watched else None
        run = Run(
            run_id="test", root_home=self.home, home=self.home, clock=SystemClock(), started_at=SystemClock().time(),
            environ=dict(os.environ), layout=layout, product=attrs.evolve(TOY, environment="none"), checkout=self.source,
            install=self.paths, ask=ask, options=UpdateOptions(**options),  # type: ignore[arg-type]
        )  # fmt: skip
        self.events = [event async for event in real.prepare(run)]
        prepared = next(event for event in self.events if isinstance(event, Prepared))
        run.candidate, run.changed = prepared.candidate, prepared.changed
        if prepared.changed:
            self.events += [event async for event in real.commit(run)]
        return run

    def edit(self) -> None:
        """An edit of a tracked file, as a person makes it."""
        place = self.source / "toy/__init__.py"
        place.write_text(place.read_text() + "# mine\n")

    @property
    def is_edited(self) -> bool:
        return (self.source / "toy/__init__.py").read_text().endswith("# mine\n")


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    origin = make_origin(tmp_path / "origin", TOY_FILES)
    return Asked(origin, origin.clone(tmp_path / "source"), make_folder(tmp_path / "home"))


@pytest.mark.parametrize(("answer", "back"), [("", True), ("y", True), ("no", False), ("perhaps", False)])
async def test_whether_edits_come_back_is_asked_who_watches(asked: Asked, answer: str, back: bool) -> None:
    asked.answer = answer
    asked.edit()
    new = asked.origin.commit({"toy/value.py": "VALUE = 5\n"})
    await asked.update("checkout")
    assert asked.questions == [
        ("Local changes of 1 file are put aside. Bring them back after the update?", "yes")
    ]
    assert git(asked.source, "rev-parse", "HEAD") == new
    assert asked.is_edited is back
    assert bool(git(asked.source, "stash", "list")) is not back


@pytest.mark.parametrize("options", [{}, {"yes": True}, {"keep_stash": True}])
async def test_nobody_is_asked_without_need(asked: Asked, options: dict[str, bool]) -> None:
    """Nobody watches, `--yes`, `--keep-stash`: the edits come back but where they were told to stay."""
    asked.edit()
    asked.origin.commit({"toy/value.py": "VALUE = 5\n"})
    await asked.update("checkout", watched=bool(options), **options)
    assert asked.questions == []
    assert asked.is_edited is not options.get("keep_stash", False)


async def test_a_clean_checkout_asks_nothing(asked: Asked) -> None:
    asked.origin.commit({"toy/value.py": "VALUE = 5\n"})
    await asked.update("checkout")
    assert asked.questions == []


@pytest.mark.parametrize(("answer", "back"), [("yes", True), ("", False)])
async def test_a_chat_is_asked_through_its_files_and_no_is_the_default(
    asked: Asked, answer: str, back: bool
) -> None:
    """A chat cannot see the files: it used to be asked of sealed installs alone, which put nothing aside."""
    asked.edit()
    asked.origin.commit({"toy/value.py": "VALUE = 5\n"})
    work = asyncio.ensure_future(asked.update("checkout", watched=False, gateway_mode=True))
    while (waiting := pending_prompt(asked.home)) is None:
        assert not work.done(), "it went on without a question"
        await asyncio.sleep(0.02)
    assert waiting.default == "no"
    assert answer_prompt(asked.home, waiting.id, answer)
    await work
    assert asked.is_edited is back


@pytest.mark.parametrize("layout", ["sealed", "checkout"])
@pytest.mark.parametrize(
    ("answer", "watched", "chat", "follows"),
    [("y", True, False, True), ("", True, False, False), ("n", True, False, False), ("y", False, False, False), ("y", True, True, False)],
)  # fmt: skip
async def test_a_moved_remote_is_followed_only_when_the_person_who_watches_says_so(
    asked: Asked, tmp_path: Path, layout: Layout, answer: str, watched: bool, chat: bool, follows: bool
) -> None:
    if layout == "sealed":
        install_checkout(
            asked.source, asked.home, product=attrs.evolve(TOY, environment="none"), python=sys.executable
        )
    else:
        await asked.update("checkout", watched=False)
    other = Origin(asked.origin.clone(tmp_path / "other"))
    git(asked.source, "remote", "set-url", "origin", f"file://{other.folder}")
    wanted = other.commit({"toy/value.py": "VALUE = 666\n"})
    pinned = asked.origin.commit({"toy/value.py": "VALUE = 2\n"})
    before = read_record(asked.paths).remote_url
    asked.answer = answer
    run = await asked.update(layout, watched=watched, gateway_mode=chat)
    assert run.candidate is not None
    assert run.candidate.target == (wanted if follows else pinned)
    assert bool(asked.questions) is (watched and not chat)
    assert all(default == "no" for _, default in asked.questions)
    assert (read_record(asked.paths).remote_url == before) is not follows
    told = "\n".join(event.copy_terminal for event in asked.events)
    assert ("pinned at install" in told) is not follows
