"""Known bugs that the harness plants in a copy of the tree to prove that it would notice them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nedura.testing.installs import Content
from tests.crash.plan import Kill

__all__ = ["BUGS", "Bug"]


@attrs.frozen(kw_only=True)
class Bug:
    """One planted bug.

    Attributes:
        name: for people.
        file: path in the tree.
        old, new: text that is replaced.
        kill: the kill that shows it.
        attempts: tries before it counts as unnoticed.
    """

    name: str
    file: str
    old: str
    new: str
    kill: Kill
    attempts: int = 3

    def plant(self, files: Mapping[str, Content]) -> dict[str, Content]:
        """The tree with the bug in it."""
        text = files[self.file]
        assert isinstance(text, bytes)
        assert self.old.encode() in text, f"{self.name}: {self.file} has changed"
        return {**files, self.file: text.replace(self.old.encode(), self.new.encode(), 1)}


NEVER = Kill(seed=0, how="instant", after=10_000.0)

BUGS = (
    Bug(
        name="the commit happens before its obligations",
        file="nedura/update/stages.py",
        old="    armed = arm(run)\n    try:\n",
        new="    import os, signal\n"
        "    async for event in parts.commit(run):\n        pass\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n    armed = arm(run)\n    try:\n",
        kill=NEVER,
        attempts=1,
    ),
    Bug(
        name="a lock that is kept",
        file="nedura/update/lock.py",
        old='        """Give both back. The marker goes only while it still is the one we wrote; the flock by closing."""\n',
        new='        import subprocess\n        subprocess.Popen(["sleep", "60"], pass_fds=self.fds, start_new_session=True)\n',
        kill=NEVER,
        attempts=1,
    ),
    Bug(
        name="a restart that is forgotten",
        file="nedura/update/obligations.py",
        old="            write_json(path, restart_record.encode(record))\n        return lambda: self._hand_back",
        new="            pass\n        return lambda: self._hand_back",
        kill=Kill(seed=0, how="call", call="execve", number=1),
    ),
    Bug(
        name="a tail that is never armed",
        file="nedura/update/obligations.py",
        old="            write_bytes(self.path, TAIL_LINE)\n",
        new="            pass\n",
        kill=Kill(seed=0, how="call", call="execve", number=1),
    ),
)
"""Each must be reported."""
