"""Reading the trace of a struck update while it grows: whether the planned call was made, and whose it was."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import attrs

from tests.crash.trace import family

__all__ = ["Follower"]

_LINE: Final = re.compile(rb"^(\d+)\s+(\w+)\(")
_KILLED: Final = re.compile(rb"^(\d+)\s+\+\+\+ killed by SIGKILL")
_BYSTANDER: Final = re.compile(rb"execve\(.*(\"gateway\", \"run\"|relaunch)")


@attrs.define
class Follower:
    """One trace, read up to where it was read last.

    The update ends processes of its own by SIGKILL, so that a death says nothing: a thread that made as many calls as it may does.

    Attributes:
        path: the trace.
        call, number: what is struck.
        struck: whether that call was made.
        failed: whether a call was made to fail.
        bystander: whether it was a gateway that was struck, or what brings one back, and not the updater.
    """

    path: Path
    call: str
    number: int
    struck: bool = False
    failed: bool = False
    bystander: bool = False
    place: int = 0
    made: Counter[bytes] = attrs.field(factory=Counter)
    others: set[bytes] = attrs.field(factory=set)

    def look(self) -> None:
        """Read on; half a line is left for the next time."""
        with self.path.open("rb") as file:
            file.seek(self.place)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self.place += end
        for line in data[:end].splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        killed, made = _KILLED.match(line), _LINE.match(line)
        if killed and killed[1] in self.others:
            self.bystander = True
        if b"(INJECTED)" in line:
            self.failed = True
            self.bystander = self.bystander or line.split(None, 1)[0] in self.others
        if not made:
            return
        if _BYSTANDER.search(line):
            self.others.add(made[1])
        if made[2].decode() in family(self.call).split(","):
            self.made[made[1]] += 1
            self.struck = self.struck or self.made[made[1]] == self.number
