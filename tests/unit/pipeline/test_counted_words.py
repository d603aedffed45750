"""Whoever counts things names one of them in the singular, wherever an update prints a count."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nedura
import nedura_cli
from nedura.text import counted
from nedura.update.events import SnapshotTaken
from nedura.update.events_snapshot import BackupTaken, SnapshotRestored

_NOUN = re.compile(
    r"\A (?:(?!had |across )[a-z]+ )?(?:files|edits|commits|members|profiles|services|homes|folders|turns|snapshots|entries|steps|tries)\b"
)
_OTHER = re.compile(r"(?:more than |of |an archive may \(|The new version holds |The archive has )\Z")
"""What stands before a limit, a total or what is over a limit: none of them is one."""
_ALWAYS_MANY = ("files are needed", "tries to repair")


def test_one_is_one_and_all_others_are_many() -> None:
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(3, "entry", "entries") == "3 entries"


def test_what_snapshots_backups_and_restores_print() -> None:
    taken = SnapshotTaken(profile="default", snapshot_id="20260101-000000-manual", files=1, size=60)
    assert "(1 file, 60 B)" in taken.copy_terminal
    assert "(1 file, " in BackupTaken(path="/b.zip", files=1, size=60).copy_terminal
    restored = SnapshotRestored(
        profile="default", snapshot_id="20260101-000000-manual", restored=("state.db",)
    )
    assert "restored 1 file from" in restored.copy_terminal
    assert restored.copy == "Restored 1 file of default."


def _bare_counts(source: str) -> list[str]:
    """Formatted texts in which a bare number stands before a plural."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for index, part in enumerate(node.values[1:], 1):
            number = node.values[index - 1]
            if not isinstance(part, ast.Constant) or not isinstance(number, ast.FormattedValue):
                continue
            before = node.values[index - 2] if index > 1 else None
            lead = before.value if isinstance(before, ast.Constant) else ""
            text = str(part.value)
            if (
                _NOUN.match(text)
                and not _OTHER.search(str(lead))
                and not any(words in text for words in _ALWAYS_MANY)
            ):
                found.append(ast.unparse(node))
    return found


def test_no_text_puts_a_bare_number_before_a_plural() -> None:
    roots = [Path(module.__file__ or "").parent for module in (nedura, nedura_cli)]
    found = {
        str(path.relative_to(root)): bare
        for root in roots
        for path in sorted(root.rglob("*.py"))
        if (bare := _bare_counts(path.read_text("utf-8")))
    }
    assert not found
