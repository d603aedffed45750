"""Whatever git says of a damaged object of our repository, it is called that: then the repository is made again (renew.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.update.source.git import Git, find_git

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty, as a power cut leaves it": lambda data: b"",
    "cut off": lambda data: data[: len(data) // 2],
    "garbled": lambda data: b"\0" * len(data),
    "with more behind it": lambda data: data + b"more",
    "garbled behind its head": lambda data: data[:4] + b"\xff" * (len(data) - 4),
}
WHO = {f"GIT_{role}_{what}": "x@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_damage_is_known_by_every_command_that_meets_it(tmp_path: Path, kind: str, how: str) -> None:
    git = Git(program=find_git(os.environ), repo=tmp_path / "repo.git", environ=os.environ)
    git.run("init", "-q", "--bare", str(git.repo))
    blob = git.line("hash-object", "-w", "--stdin", stdin=b"one line of text and another\n" * 40)
    tree = git.line("mktree", stdin=f"100644 blob {blob}\tname\n".encode())
    commit = git.line("commit-tree", tree, "-m", "one", extra=WHO)
    made = {"blob": blob, "tree": tree, "commit": commit}
    path = git.repo / "objects" / made[kind][:2] / made[kind][2:]
    path.chmod(0o600)
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    asked = {
        "blob": [["cat-file", "blob", blob]],
        "tree": [["cat-file", "-p", tree], ["commit-tree", tree, "-m", "again"], ["ls-tree", "-r", tree]],
        "commit": [["commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-p", commit, "-m", "behind"], ["log", "-1", commit]],
    }  # fmt: skip
    told = [error for command in asked[kind] if (error := failure(git, command)) is not None]
    assert told or how == "with more behind it"
    assert [error.message for error in told if error.stop_class != "broken_objects"] == []


def failure(git: Git, command: list[str]) -> UpdateError | None:
    """How a command failed."""
    try:
        git.run(*command, extra=WHO)
    except UpdateError as error:
        return error
    return None
