"""A member knows whether a start now would give other code (decision 31), in both layouts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.fleet.skew import Skew
from nedura.installs import CodeIdentity

OLD, NEW = "1" * 40, "2" * 40


def sealed(root: Path) -> Path:
    """An install with two generations, the first one current; returns a file of the first one's code."""
    install = root / "installs" / ("a" * 12)
    for number in ("000001", "000002"):
        (install / "generations" / number / "tree" / "nedura").mkdir(parents=True)
    (install / "current").symlink_to("generations/000001")
    anchor = install / "generations" / "000001" / "tree" / "nedura" / "x.py"
    anchor.touch()
    return anchor


def point(anchor: Path, target: str) -> None:
    current = anchor.parents[4] / "current"
    current.unlink()
    if target:
        current.symlink_to(target)


@pytest.mark.parametrize(
    ("target", "stale"),
    [("generations/000001", False), ("generations/000002", True), ("../elsewhere", False), ("", False)],
)
def test_sealed_goes_by_the_pointer(tmp_path: Path, target: str, stale: bool) -> None:
    anchor = sealed(tmp_path)
    skew = Skew(CodeIdentity(generation="000001", code_sha=OLD), anchor, ttl=0)
    assert not skew.stale
    point(anchor, target)
    assert skew.stale is stale, "what cannot be read is not stale"


def test_a_checkout_goes_by_its_head(tmp_path: Path) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(f"{OLD}\n")
    anchor = tmp_path / "x.py"
    anchor.touch()
    skew = Skew(CodeIdentity(code_sha=OLD), anchor, ttl=0)
    assert not skew.stale
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text(f"{NEW}\n")
    assert skew.stale
    os.unlink(tmp_path / ".git" / "HEAD")
    assert not skew.stale


def test_an_answer_counts_for_a_moment(tmp_path: Path) -> None:
    anchor = sealed(tmp_path)
    skew = Skew(CodeIdentity(generation="000001"), anchor, ttl=60)
    assert not skew.stale
    point(anchor, "generations/000002")
    assert not skew.stale
