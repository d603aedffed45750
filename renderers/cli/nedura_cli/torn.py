"""A checkout whose update was interrupted in the middle of its move is put back before anything else of it is imported.

Standard library only, and nothing of the tree but `nedura.update.torn`; when that module itself is torn, its published copy in the git
folder does the work (facts/update.md 10.2). Costs one look where nothing is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["mend_first"]

MARKER = "nedura-update-pull"
RECOVERY = "nedura-update-recovery"
MENDED = "NEDURA_TREE_MENDED"
EXIT_TORN = 70


def mend_first() -> int:
    """Mend this process's checkout if a dead update left it torn, and start again on what is whole.

    Returns:
        0 to go on, else the exit code to end with; the reason is on stderr.
    """
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    git = os.path.join(checkout, ".git")
    if not os.path.lexists(os.path.join(git, MARKER)):
        return 0
    try:
        from nedura.update.torn import TornError, mend
    except (ImportError, SyntaxError, ValueError):
        return _by_copy(checkout, git)
    try:
        mended = mend(checkout)
    except TornError as error:
        sys.stderr.write(f"nedura: {error}\n")
        return EXIT_TORN
    if mended.relaunch:
        kept = f" Your local edits are kept in {mended.stash}." if mended.stash else ""
        sys.stderr.write(f"nedura: an interrupted update was {mended.action.replace('_', ' ')}.{kept}\n")
        _start_again()
    return 0


def _by_copy(checkout: str, git: str) -> int:
    """The repair modules are torn themselves: run the copy that the update published before it moved anything."""
    pre = ""
    with open(os.path.join(git, MARKER), encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("pre="):
                pre = line[4:].strip()
    copy = os.path.join(git, RECOVERY, pre, "nedura", "update", "torn.py")
    if not pre.isalnum() or not os.path.isfile(copy):
        sys.stderr.write(
            f"nedura: an update of {checkout} was interrupted, and its repair is torn too. Run: git reset --hard {pre}\n"
        )
        return EXIT_TORN
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-X", "utf8", copy, checkout], check=False)
    if done.returncode not in (0, 75):
        return EXIT_TORN
    _start_again()
    return EXIT_TORN


def _start_again() -> None:
    """This process has read files of both versions: a new one reads one."""
    if os.environ.get(MENDED) == "1":  # once is enough: what is torn again is looked at by a person
        return
    os.environ[MENDED] = "1"
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
