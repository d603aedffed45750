"""A real origin, a clone of it, and a move between them."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path

import attrs

from nedura.product import NEDURA, Product
from nedura.programs import find_program
from nedura.testing.installs import git
from nedura.update.commit.checkout import CheckoutJob, move_checkout
from nedura.update.events import Committed, StepDone, UserAction
from nedura.update.source.move_marker import MARKER
from nedura.update.source.source_git import SourceGit
from nedura.wire import Event

__all__ = ["CHANGE", "FILES", "TOY", "Tree", "ahead", "make_tree", "run_move", "whole"]

TOY: Product = attrs.evolve(
    NEDURA, name="toy", command="toy", main_modules=("toy.main",), roots=("",), launch_modules=("toy.main",)
)
FILES: dict[str, str] = {
    "toy/__init__.py": "",
    "toy/main.py": "from toy import value\nprint(value.VALUE)\n",
    "toy/value.py": "VALUE = 1\n",
    "README": "".join(f"line {n}\n" for n in range(30)),
    "old.txt": "goes away\n",
    ".gitignore": "__pycache__/\nignored/\n",
}

CHANGE: dict[str, str | None] = {
    "toy/value.py": "VALUE = 2\n",
    "new/file.txt": "new\n",
    "old.txt": None,
    "README": "first\n" + "".join(f"line {n}\n" for n in range(30)),
}


def write(folder: Path, files: dict[str, str | None]) -> None:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@attrs.frozen
class Tree:
    """An origin and its clone."""

    origin: Path
    checkout: Path

    def commit(
        self, files: dict[str, str | None], message: str = "more", *, where: Path | None = None
    ) -> str:
        folder = where or self.origin
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", message)
        return git(folder, "rev-parse", "HEAD").strip()

    def fetch(self) -> str:
        git(self.checkout, "fetch", "-q", "origin", "main")
        return git(self.checkout, "rev-parse", "FETCH_HEAD").strip()

    def git(self, *args: str, check: bool = True) -> str:
        return git(self.checkout, *args, check=check)

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    @property
    def branch(self) -> str:
        return self.git("symbolic-ref", "-q", "--short", "HEAD", check=False).strip()

    @property
    def status(self) -> list[str]:
        return self.git("status", "--porcelain", "-uall").splitlines()

    @property
    def stashes(self) -> list[str]:
        return self.git("stash", "list", "--format=%H").split()

    def runner(self) -> SourceGit:
        program = find_program("git")
        assert program is not None
        git_dir = self.git("rev-parse", "--absolute-git-dir").strip()
        return SourceGit(program, self.checkout.resolve(), git_dir)

    def job(self, target: str, **changes: object) -> CheckoutJob:
        runner = self.runner()
        common = self.git("rev-parse", "--path-format=absolute", "--git-common-dir").strip()
        job = CheckoutJob(
            git=runner,
            common_dir=Path(common),
            target=target,
            target_branch="main",
            now=1_800_000_000.0,
            product=TOY,
            environ=dict(os.environ),
        )
        return attrs.evolve(job, **changes)  # type: ignore[arg-type]


def make_tree(tmp_path: Path, files: dict[str, str] | None = None) -> Tree:
    origin, checkout = tmp_path / "origin", tmp_path / "checkout"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    git(origin, "config", "receive.denyCurrentBranch", "ignore")
    tree = Tree(origin, checkout)
    tree.commit(dict(files or FILES), "one")
    git(tmp_path, "clone", "-q", str(origin), str(checkout))
    return tree


@attrs.frozen
class Result:
    """The events of a move."""

    events: list[Event]
    error: Exception | None

    @property
    def committed(self) -> bool:
        return any(isinstance(event, Committed) for event in self.events)

    @property
    def actions(self) -> list[UserAction]:
        return [event for event in self.events if isinstance(event, UserAction)]

    def step(self, name: str) -> StepDone:
        (found,) = [event for event in self.events if isinstance(event, StepDone) and event.name == name]
        return found

    @property
    def text(self) -> str:
        return "\n".join(event.copy_terminal for event in self.events)


async def run_move(job: CheckoutJob) -> Result:
    events: list[Event] = []
    try:
        async with aclosing(move_checkout(job)) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - what came before an error counts
    except Exception as error:
        return Result(events, error)
    return Result(events, None)


def ahead(tree: Tree) -> str:
    tree.commit(CHANGE, "two")
    return tree.fetch()


def whole(tree: Tree, commit: str, branch: str = "main") -> None:
    assert tree.head == commit
    assert tree.branch == branch
    assert tree.status == []
    assert not Path(tree.runner().git_dir, MARKER).exists()
    tree.git("fsck", "--strict")
