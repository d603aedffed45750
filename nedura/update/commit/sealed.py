"""The commit of a sealed install: one rename (generations.md 4)."""

from __future__ import annotations

import os
from pathlib import Path

from nedura.errors import UpdateError
from nedura.installs import InstallPaths
from nedura.update.generation.generations import is_generation, point
from nedura.update.run import Candidate

__all__ = ["commit_sealed", "take_back"]


def commit_sealed(paths: InstallPaths, candidate: Candidate) -> Path | None:
    """Make a whole generation current; returns what was current before.

    Raises:
        UpdateError: it is not a whole generation of this install.
        StoreError: the pointer cannot be read or moved; the old one stands.
    """
    folder = candidate.folder
    if folder.parent != paths.generations or not is_generation(folder):
        raise UpdateError(f"Generation {folder.name} is not whole.", stop_class="commit")
    before = paths.pointed()
    if before is not None and before != folder:
        os.utime(before)  # its ten minutes of grace begin now
        point(paths, paths.previous, before, durable=False)
    point(paths, paths.current, folder)
    return before


def take_back(paths: InstallPaths, previous: Path | None) -> None:
    """Make the generation before current again (the spec's "rolled back").

    Raises:
        UpdateError: there is none, or it is not whole any more.
        StoreError: the pointer cannot be moved.
    """
    if previous is None or previous.parent != paths.generations or not is_generation(previous):
        raise UpdateError("There is no generation to go back to.", stop_class="commit")
    point(paths, paths.current, previous)
