"""Whether the tree that this process runs from is whole: an update killed in its move is mended before anything else is imported.

Standard library only, and one or two `stat` calls when all is well. A sealed generation has neither marker.
"""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["mend_own_tree"]

MARKER: Final = "nedura-update-pull"
RECOVERY: Final = "nedura-update-recovery"
SWAP: Final = ".nedura-update-swap.json"
MEND_SECONDS: Final = 120.0


def mend_own_tree(root: str | None = None) -> tuple[bool, str]:
    """Mend the tree of this code when a killed update left it half moved.

    Args:
        root: the tree; default the one this module lies in.

    Returns:
        Whether files changed, so that the process must start again; and why it must not go on, empty when it may.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) if root is None else root
    if os.path.lexists(os.path.join(root, SWAP)):
        return _mend_swap(root)
    git_dir = _git_dir(root)
    if not git_dir or not os.path.lexists(os.path.join(git_dir, MARKER)):
        return False, ""
    try:
        from nedura.update.source import torn
    except Exception:  # border: the repair code itself may be torn, in any way that Python can fail
        return _mend_by_copy(root, git_dir)
    try:
        return torn.mend(root).relaunch, ""
    except torn.TornError as error:
        return False, str(error)


def _git_dir(root: str) -> str:
    dot = os.path.join(root, ".git")
    if not os.path.isfile(dot):
        return dot
    with open(dot, "rb") as file:
        text = file.read(4096).decode("utf-8", "surrogateescape").strip()
    return os.path.join(root, text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else ""


def _mend_by_copy(root: str, git_dir: str) -> tuple[bool, str]:
    """Run the copy of the repair modules that was published before the move."""
    pre = ""
    try:
        with open(os.path.join(git_dir, MARKER), "rb") as file:
            for line in file.read(65536).splitlines():
                if line.startswith(b"pre="):
                    pre = line[4:].decode("ascii", "replace")
    except OSError as error:
        return False, f"the move marker cannot be read: {error.strerror}"
    copy = os.path.join(git_dir, RECOVERY, pre)
    script = os.path.join(copy, "nedura", "update", "source", "torn.py")
    if not pre.isalnum() or not os.path.isfile(os.path.join(copy, "MANIFEST")):
        return False, "an update was interrupted and no copy of the repair code is there; run: git status"
    import subprocess  # only a repair pays for it

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", script, root], timeout=MEND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"the repair code cannot be run: {error}"
    return done.returncode == 0, "" if done.returncode == 0 else "an interrupted update could not be put back"


def _mend_swap(root: str) -> tuple[bool, str]:
    from pathlib import Path

    try:
        from nedura.errors import NeduraError
        from nedura.update.commit.zip_swap import recover_swap
    except Exception:  # border: as above
        return False, "an update was interrupted in the middle of its swap; unpack the release again"
    try:
        return recover_swap(Path(root)) in ("undone", "finished"), ""
    except NeduraError as error:
        return False, error.message
