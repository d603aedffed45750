"""Known bugs that the harness plants in a copy of the tree to prove that it would notice them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nedura.testing.installs import Content
from tests.crash.plan import Kill

__all__ = ["BUGS", "Bug"]


NEVER = Kill(seed=0, how="instant", after=10_000.0)
"""These bugs bring their own kill, at the instant that shows them."""


@attrs.frozen(kw_only=True)
class Bug:
    """One planted bug.

    Attributes:
        name: for people.
        edits: (path in the tree, text, what it becomes).
        shows: part of the violation that must be reported.
        kill: the strike that shows it.
        needs_disk: whether only a power cut shows it.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    shows: str
    kill: Kill = NEVER
    needs_disk: bool = False

    def plant(self, files: Mapping[str, Content]) -> dict[str, Content]:
        """The tree with the bug in it."""
        planted = dict(files)
        for name, old, new in self.edits:
            text = planted[name]
            assert isinstance(text, bytes)
            assert old.encode() in text, f"{self.name}: {name} has changed"
            planted[name] = text.replace(old.encode(), new.encode(), 1)
        return planted


DIES_AFTER_THE_MOVE = (
    "nedura/update/completion/handover.py",
    "    handover = _Handover(run, parts, journal)\n",
    "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n    handover = _Handover(run, parts, journal)\n",
)

BUGS = (
    Bug(
        name="the commit happens before its obligations",
        shows="the tail is not owed",
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
        shows="the next update exits 2",
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
        shows="no restart is owed",
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
        shows="the tail is not owed",
        edits=(
            (
                "nedura/update/ledger/obligations.py",
                "            write_bytes(self.path, TAIL_LINE)\n",
                "            pass\n",
            ),
            DIES_AFTER_THE_MOVE,
        ),
    ),
    Bug(
        name="an fsync that is skipped: the files of a new version",
        shows="differ from its manifest",
        edits=(
            (
                "nedura/update/generation/generations.py",
                "        sync_filesystem(folder)\n        data = ",
                "        data = ",
            ),
        ),
        kill=Kill(seed=0, how="stage", what="power", stage="first_member"),
        needs_disk=True,
    ),
    Bug(
        name="a follow-up that is dropped",
        shows="the launcher was not published",
        edits=(
            (
                "nedura/update/completion/steps.py",
                "        failure = FollowUp(step=step, reason=why(error))\n",
                "        failure = None\n",
            ),
            (
                "nedura/update/completion/upkeep.py",
                "    write_launcher(completion.paths, completion.product)\n",
                '    raise OSError(5, "a step that fails")\n',
            ),
        ),
    ),
)
"""Each must be reported."""
