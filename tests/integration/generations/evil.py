"""A source whose own configuration, hooks and attributes run programs: each writes its own marker."""

from __future__ import annotations

import os
from pathlib import Path

from nedura.records import make_folder, write_bytes
from nedura.testing.installs import git

__all__ = ["EXEC_KEYS", "make_evil", "markers"]

EXEC_KEYS = (
    "core.fsmonitor", "core.hooksPath", "core.sshCommand", "core.editor", "core.pager", "core.askPass", "core.gitProxy",
    "core.alternateRefsCommand", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.external",
    "diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "remote.origin.uploadpack",
    "remote.origin.receivepack", "credential.helper", "gpg.program", "sequence.editor", "include.path",
)  # fmt: skip
HOOKS = (
    "post-checkout", "post-merge", "pre-commit", "post-commit", "reference-transaction", "post-index-change", "pre-merge-commit",
    "post-rewrite", "pre-auto-gc", "fsmonitor-watchman",
)  # fmt: skip


def script(folder: Path, name: str, marks: Path) -> Path:
    """A program that leaves a marker and does nothing else."""
    path = folder / name
    write_bytes(
        path, f"#!/bin/sh\n: > '{marks}/{name}'\ncat 2>/dev/null </dev/null\nexit 0\n".encode(), 0o755
    )
    return path


def make_evil(checkout: Path, folder: Path) -> Path:
    """Turn a clone into a trap.

    Args:
        checkout: the clone.
        folder: where programs and markers go.

    Returns:
        folder of the markers.
    """
    programs, marks = make_folder(folder / "programs"), make_folder(folder / "marks")
    for key in EXEC_KEYS:
        if key in ("include.path", "core.hooksPath"):
            continue
        program = script(programs, key, marks)
        git(checkout, "config", key, str(program))
    write_bytes(
        folder / "included", f"[core]\n\tsshCommand = {script(programs, 'included', marks)}\n".encode()
    )
    git(checkout, "config", "include.path", str(folder / "included"))
    hooks = make_folder(folder / "hooks")
    for name in HOOKS:
        script(hooks, name, marks)
        write_bytes(hooks / name, f"#!/bin/sh\n: > '{marks}/hook-{name}'\n".encode(), 0o755)
    git(checkout, "config", "core.hooksPath", str(hooks))
    make_folder(checkout / ".git" / "info")
    write_bytes(checkout / ".git" / "info" / "attributes", b"* filter=evil diff=evil merge=evil\n")
    write_bytes(checkout / ".gitattributes", b"*.py filter=evil diff=evil merge=evil\n")
    for mark in marks.iterdir():  # the configuration itself already fired some
        os.unlink(mark)
    return marks


def markers(marks: Path) -> list[str]:
    """Which programs ran."""
    return sorted(os.listdir(marks))
