"""Which local edits may travel into a sealed generation (decision 41, threats.md 2). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import attrs

from nedura.errors import UpdateError
from nedura.text import clean
from nedura.update.generation.start_hooks import is_start_hook
from nedura.update.generation.tree_rules import Entry, check_entries, left_out

__all__ = ["OWN_FILES", "Change", "LeftOut", "judge_change", "judge_untracked", "parse_raw_diff"]

MAX_UNTRACKED: Final = 10 * 1024 * 1024
MAX_COUNT: Final = 5000
MAX_TOTAL: Final = 512 * 1024 * 1024
"""Bytes of untracked files that are carried in all: each of them is read and kept."""
OWN_FILES: Final = frozenset(
    {
        ".install_method",
        ".managed",
        ".update-incomplete",
        "install-stamp.json",
        ".update_exit_code",
        ".update_prompt.json",
    }
)
"""Files that we or older releases put into a checkout: never somebody's edit."""


@attrs.frozen(kw_only=True)
class Change:
    """One entry of a raw diff: modes and blob ids before and after; all zeros where there is none."""

    path: str
    old_mode: str
    new_mode: str
    old: str
    new: str


@attrs.frozen(kw_only=True)
class LeftOut:
    """A local edit that is not carried, and why."""

    path: str
    reason: str


def parse_raw_diff(data: bytes) -> list[Change]:
    """Entries of `git diff-tree -r -z --raw --no-renames`."""
    parts = data.split(b"\0")
    changes = []
    for head, name in zip(parts[0::2], parts[1::2], strict=False):
        if not head.startswith(b":"):
            continue
        old_mode, new_mode, old, new, _ = head[1:].decode("ascii").split(" ", 4)
        path = name.decode("utf-8", "surrogateescape")
        changes.append(Change(path=path, old_mode=old_mode, new_mode=new_mode, old=old, new=new))
    return changes


def _runs_at_start(path: str) -> bool:
    """Whether Python would take it up by itself, wherever its path begins: which folders those are is the product's choice."""
    parts = path.split("/")
    return path.endswith(".pth") or any(is_start_hook("/".join(parts[n:])) for n in range(len(parts)))


def _bad_name(path: str) -> str:
    try:
        check_entries([Entry("100644", "", 0, path)])
    except UpdateError:
        return "its name is not plain"
    return ""


def judge_untracked(
    path: str, kind: Literal["file", "link", "folder", "other"], size: int, taken: int = 0
) -> str:
    """Why an untracked file is not carried; empty when it is.

    Args:
        path: its path in the checkout; ends with a slash for a nested repository.
        kind: what it is.
        size: bytes.
        taken: bytes of those that are carried already.
    """
    if path.endswith("/") or kind == "folder":
        return "it is a git repository of its own"
    if kind != "file":
        return "it is a link" if kind == "link" else "it is no regular file"
    if _runs_at_start(path):
        return "it would run at each start of Python"
    if size > MAX_UNTRACKED:
        return f"it is larger than {MAX_UNTRACKED >> 20} MB"
    if taken + size > MAX_TOTAL:
        return f"untracked files of more than {MAX_TOTAL >> 20} MB in all are not carried"
    return _bad_name(path)


def judge_change(change: Change) -> str:
    """Why an edit of a tracked file is not carried; empty when it is."""
    if change.new_mode == "000000":
        return ""
    if change.new_mode == "120000":
        return "it is a link"
    if change.new_mode == "160000":
        return "it is a submodule"
    if _runs_at_start(change.path):
        return "it would run at each start of Python"
    return _bad_name(change.path)


def is_own(path: str) -> bool:
    """Whether a file in a checkout is ours or compiled, and so nobody's edit."""
    return path in OWN_FILES or left_out(path) or path.startswith((".nedura-", ".update_"))


def told(left: Iterable[LeftOut], limit: int = 10) -> str:
    """The left-out edits in one line."""
    items = list(left)
    shown = "; ".join(f"{clean(item.path, 80)}: {item.reason}" for item in items[:limit])
    return shown + (f"; and {len(items) - limit} more" if len(items) > limit else "")
