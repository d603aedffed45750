"""The published copy of the repair modules: taken from the commit before the move, for the launch that finds them torn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from nedura.records import fsync_folder, make_folder, write_bytes
from nedura.update.generation.durable import remove_tree
from nedura.update.source.move_marker import RECOVERY
from nedura.update.source.source_git import SourceGit
from nedura.update.source.torn import MODULES

__all__ = ["MANIFEST", "publish", "published"]

MANIFEST: Final = "MANIFEST"


def publish(git: SourceGit, pre: str) -> Path | None:
    """Put the repair modules as committed at `pre` into the git folder, durably; older copies go.

    Returns:
        The copy's folder; None when the commit has no such modules (a host application's own tree).

    Raises:
        StoreError, SourceGitError: it cannot be published; nothing may be moved.
    """
    listed = git.run("ls-tree", "-z", "--full-tree", pre, "--", *MODULES).items
    blobs = {item.split("\t", 1)[1]: item.split("\t", 1)[0].split(" ")[2] for item in listed}
    root = make_folder(Path(git.git_dir) / RECOVERY)
    if set(blobs) != set(MODULES):
        return None
    folder = root / pre
    if not (folder / MANIFEST).is_file():
        remove_tree(folder)
        for path, blob in blobs.items():
            make_folder((folder / path).parent)
            write_bytes(folder / path, git.run("cat-file", "blob", blob).out)
        lines = "".join(f"{blob} {path}\n" for path, blob in sorted(blobs.items()))
        write_bytes(folder / MANIFEST, lines.encode())
        fsync_folder(root)
    for name in os.listdir(root):
        if name != pre:
            remove_tree(root / name)
    return folder


def published(git_dir: Path, pre: str) -> Path | None:
    """Path of the published `torn.py` for a commit; None when there is no whole copy."""
    folder = git_dir / RECOVERY / pre
    return folder / "nedura/update/source/torn.py" if (folder / MANIFEST).is_file() else None
