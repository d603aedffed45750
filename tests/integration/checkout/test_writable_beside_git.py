"""Whether git can write is asked while another git may be at work: what it takes away meanwhile is no fault (case C038)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nedura.errors import RefusedError
from nedura.update.commit.gitlocks import check_writable


def walk_beside_git(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """What a walk lists while another git collects: a folder of objects and a file that are gone when they are looked at."""
    yield from os.walk(top)
    yield str(top / "objects/0b"), [], ["x"]
    yield str(top), [], ["ORIG_HEAD"]


def test_what_goes_while_it_is_looked_at_is_no_fault(tmp_path: Path) -> None:
    """An update beside it ended with a traceback, or was told to change the owner of what is not there."""
    (tmp_path / "HEAD").touch()
    check_writable(tmp_path, tmp_path, tmp_path, walk=walk_beside_git)
    with pytest.raises(RefusedError, match="HEAD") as told:
        check_writable(tmp_path, tmp_path, tmp_path, me=os.geteuid() + 1, walk=walk_beside_git)
    assert "0b" not in told.value.message
