"""Whether a check that failed says something about the version, or only about the machine and the moment."""

from __future__ import annotations

import re
import signal
from typing import Final

from nedura.errors import UpdateError
from nedura.update.bounded import Finished

__all__ = ["CHECK_KILLED", "PACKAGES_CHANGED", "condemns", "killed_by"]

CHECK_KILLED: Final = "check_killed"
"""Stop class of a check whose process somebody ended (the kernel for want of memory, a person)."""
PACKAGES_CHANGED: Final = "packages_changed"
"""Stop class of packages that somebody changed after they were installed: the version has no part in it."""
_FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_OF_THE_MACHINE: Final = re.compile(r"\[Errno (?:5|12|23|24|28|30|122)\]|\bMemoryError\b")
"""EIO, ENOMEM, ENFILE, EMFILE, ENOSPC, EROFS, EDQUOT as Python words them."""


def killed_by(done: Finished) -> str:
    """Name of the signal by which somebody else ended a check's process, empty when it ended otherwise.

    Args:
        done: how it ended.
    """
    if done.timed_out or -done.code not in _FROM_OUTSIDE:
        return ""
    return signal.Signals(-done.code).name


def condemns(error: UpdateError) -> bool:
    """Whether the version is to be refused from now on (decision 34).

    Args:
        error: why its check failed.
    """
    return error.stop_class not in (CHECK_KILLED, PACKAGES_CHANGED) and not _OF_THE_MACHINE.search(
        error.message
    )
