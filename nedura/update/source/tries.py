"""A repair at launch stops after three tries of one damage and says so; only a person's update tries again.

Standard library only: a launch from a torn tree reads it, and it is part of the published copy of the repair modules.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

__all__ = ["MAX_TRIES", "Tries"]

MAX_TRIES: Final = 3


class Tries:
    """How often launches have tried to mend one damage: counted before a try, so that one that kills its process counts, too.

    Args:
        place: file of the count.
        damage: what tells this damage from another, e.g. the bytes of its marker.
        again: how a person asks for another try.
    """

    def __init__(self, place: str, damage: bytes, again: str = "run: nedura update") -> None:
        self._place = place
        self._again = again
        self._key = hashlib.sha256(damage).hexdigest()
        self.count, self.reason = 0, ""
        try:
            with open(place, encoding="utf-8", errors="replace") as file:
                key, count, self.reason = [*file.read(4096).split("\n"), "", "", ""][:3]
            self.count = int(count) if key == self._key else 0
        except (OSError, ValueError):
            pass  # no try yet, or no count that can be believed

    def over(self) -> str:
        """Why launches try no more; empty while they do."""
        if self.count < MAX_TRIES:
            return ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.count} tries to repair this install failed{why}; remove the cause, then {self._again}"

    def begin(self) -> None:
        """Count a try that begins."""
        self.count += 1
        self._write()

    def waive(self) -> None:
        """What began was no try: nothing could be done before somebody else has acted."""
        self.count -= 1
        self._write()

    def failed(self, reason: str) -> None:
        """Keep why the try that was counted failed."""
        self.reason = " ".join(reason.split())[:500]
        self._write()

    def end(self) -> None:
        """The damage is mended."""
        try:
            os.unlink(self._place)
        except OSError:
            pass  # a count of another damage says nothing about the next one

    def _write(self) -> None:
        try:
            handle = os.open(
                self._place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError:
            return  # a full disk: to mend frees space, and matters more than the count
        try:
            os.write(handle, f"{self._key}\n{self.count}\n{self.reason}\n".encode("utf-8", "replace"))
            os.fsync(handle)
        except OSError:
            pass  # as above
        finally:
            os.close(handle)
