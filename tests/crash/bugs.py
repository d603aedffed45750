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
        edits: (path in the tree, text, what it becomes).
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]

    def plant(self, files: Mapping[str, Content]) -> dict[str, Content]:
        """The tree with the bug in it."""
        planted = dict(files)
        for name, old, new in self.edits:
            text = planted[name]
            assert isinstance(text, bytes)
            assert old.encode() in text, f"{self.name}: {name} has changed"
            planted[name] = text.replace(old.encode(), new.encode(), 1)
        return planted


NEVER = Kill(seed=0, how="instant", after=10_000.0)
"""These bugs bring their own kill, at the instant that shows them."""

DIES_AFTER_THE_MOVE = (
    "nedura/update/completion/handover.py",
    "    handover = _Handover(run, parts, journal)\n",
    "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n    handover = _Handover(run, parts, journal)\n",
)

BUGS = (
    Bug(
        name="the commit happens before its obligations",
        edits=(
            (
                "nedura/update/stages.py",
                "    armed = arm(run)\n    try:\n",
                "    import os, signal\n    async for event in parts.commit(run):\n        pass\n"
                "    os.kill(os.getpid(), signal.SIGKILL)\n    armed = arm(run)\n    try:\n",
            ),
        ),
    ),
    Bug(
        name="a lock that is kept",
        edits=(
            (
                "nedura/update/ledger/lock.py",
                '        """Give both back. The marker goes only while it still is the one we wrote; the flock by closing."""\n',
                '        import subprocess\n        subprocess.Popen(["sleep", "60"], pass_fds=self.fds, start_new_session=True)\n',
            ),
        ),
    ),
    Bug(
        name="a restart that is forgotten",
        edits=(
            (
                "nedura/update/ledger/obligations.py",
                "            write_json(path, restart_record.encode(record))\n        return lambda: self._hand_back",
                "            pass\n        return lambda: self._hand_back",
            ),
            DIES_AFTER_THE_MOVE,
        ),
    ),
    Bug(
        name="a tail that is never armed",
        edits=(
            (
                "nedura/update/ledger/obligations.py",
                "            write_bytes(self.path, TAIL_LINE)\n",
                "            pass\n",
            ),
            DIES_AFTER_THE_MOVE,
        ),
    ),
)
"""Each must be reported."""
