"""Reading the source's edits: what is untouched is known by questions alone, and whatever is touched is found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import Site, git
from nedura.update.source.edits import Edits, read_edits
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import read_source

FILE = "toy/value.py"


@pytest.fixture
def read(site: Site) -> Callable[[], Edits]:
    program = find_git(dict(os.environ))
    ours = Git(program=program, repo=site.paths.repo, environ=dict(os.environ))
    return lambda: read_edits(ours, read_source(site.checkout, program), site.paths.folder)


def _changed(checkout: Path) -> None:
    (checkout / FILE).write_text("VALUE = 1234\n")


def _deleted(checkout: Path) -> None:
    (checkout / FILE).unlink()


def _staged_only(checkout: Path) -> None:
    kept = (checkout / FILE).read_bytes()
    _changed(checkout)
    git(checkout, "add", FILE)
    (checkout / FILE).write_bytes(kept)


def _untracked(checkout: Path) -> None:
    (checkout / "toy/new.py").write_text("A = 1\n")


def _mode(checkout: Path) -> None:
    (checkout / FILE).chmod(0o755)


def _announced(checkout: Path) -> None:
    (checkout / "toy/new.py").write_text("A = 1\n")
    git(checkout, "add", "-N", "toy/new.py")


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (_changed, FILE), (_deleted, FILE), (_mode, FILE), (_untracked, "toy/new.py"), (_announced, "toy/new.py"),
    ],
)  # fmt: skip
def test_every_edit_is_found(
    site: Site, read: Callable[[], Edits], edit: Callable[[Path], None], path: str
) -> None:
    edit(site.checkout)
    assert list(read().files) == [path]


def test_an_untouched_source_has_its_commits_tree(site: Site, read: Callable[[], Edits]) -> None:
    head = git(site.checkout, "rev-parse", "HEAD")
    clean = Edits(base=head, tree=git(site.checkout, "rev-parse", "HEAD^{tree}"))
    assert read() == clean
    os.utime(site.checkout / FILE)  # its stamps are no edit
    assert read() == clean
    _staged_only(site.checkout)
    assert read() == clean  # what counts is the file
    (site.checkout / ".git/index").write_bytes(b"no index")
    assert read() == clean
    (site.checkout / ".git/index").unlink()
    assert read() == clean
    assert not [name for name in os.listdir(site.paths.folder) if name.startswith(".tmp.")]


def test_an_edit_in_the_second_of_the_checkout_with_the_same_size_is_found(
    site: Site, read: Callable[[], Edits]
) -> None:
    """git tells such a one by the index's own time: our copy of the index must have it, not the time of the copy."""
    for _ in range(10):  # until all of it fell into one second, also on a busy machine
        time.sleep(1.02 - time.time() % 1)
        (site.checkout / FILE).unlink()
        git(site.checkout, "checkout", "-q", "--", FILE)
        index = os.stat(site.checkout / ".git/index")
        with open(site.checkout / FILE, "r+b") as file:
            data = file.read()
            file.seek(0)
            file.write(data.replace(b"1", b"7"))
        if int(os.stat(site.checkout / FILE).st_mtime) == int(index.st_mtime):
            break
    else:
        pytest.fail("the machine was too slow to show it")
    assert (site.checkout / FILE).stat().st_size == len(data)
    time.sleep(1.02 - time.time() % 1)  # any copy is made in a later second
    assert list(read().files) == [FILE]


def test_a_half_done_merge_is_named(site: Site, read: Callable[[], Edits]) -> None:
    git(site.checkout, "checkout", "-q", "-b", "other")
    _changed(site.checkout)
    git(site.checkout, "commit", "-q", "-a", "-m", "one")
    git(site.checkout, "checkout", "-q", "main")
    (site.checkout / FILE).write_text("VALUE = 99\n")
    git(site.checkout, "commit", "-q", "-a", "-m", "two")
    with pytest.raises(Exception, match=r"merge|exit"):
        git(site.checkout, "merge", "-q", "other")
    with pytest.raises(UpdateError, match="middle of a merge"):
        read()
