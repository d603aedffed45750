"""Which update is struck where, and by what: a pure function of the seed, so that a violation can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Final, Literal

import attrs

__all__ = ["CALLS", "STAGES", "WHATS", "Kill", "Whom", "plan_kill"]

CALLS: Final = ("fsync", "rename", "execve", "symlink", "unlink", "write")
STAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "sealed": (
        "plan", "snapshot", "prepare", "validate", "commit", "first_member", "maintenance", "restart", "verify",
    ),
    "checkout": ("plan", "snapshot", "prepare", "validate", "commit", "build", "maintenance", "restart", "verify"),
}  # fmt: skip
"""The stages that an update announces, by layout."""
Whom = Literal["tree", "parent", "child"]
How = Literal["instant", "call", "stage"]
What = Literal["kill", "power", "sigint", "full", "readonly", "eio"]

WHATS: Final[Mapping[What, int]] = {"kill": 50, "power": 25, "sigint": 6, "full": 7, "readonly": 5, "eio": 7}
"""What can happen, and how often of 100."""
_NEEDS_DISK: Final = frozenset({"power", "full", "readonly"})
_FAILS: Final = ("fsync", "rename", "symlink")


@attrs.frozen(kw_only=True)
class Kill:
    """One strike.

    Attributes:
        seed: what made it.
        how: `instant` (seconds after the start), `call` (the n-th such system call of a process of the updater tree), or `stage`
            (seconds after a stage was announced).
        what: SIGKILL, a power cut, SIGINT, a full disk, a home that can only be read, or EIO from that call.
        whom: the whole tree, only the parent, only the completion child.
        after: seconds.
        call, number: system call and which one.
        stage: name of the stage.
    """

    seed: int
    how: How
    what: What = "kill"
    whom: Whom = "tree"
    after: float = 0.0
    call: str = ""
    number: int = 0
    stage: str = ""

    @property
    def name(self) -> str:
        """For people."""
        where = {
            "call": f"{self.call} #{self.number}",
            "instant": f"{self.after:.3f} s",
            "stage": f"{self.stage} + {self.after:.3f} s",
        }[self.how]
        return f"{self.what} {self.whom} at {where}"


def plan_kill(
    seed: int,
    seconds: float,
    counts: Mapping[str, int],
    *,
    layout: str = "sealed",
    disk: bool = False,
    only: Collection[str] = (),
) -> Kill:
    """Choose one.

    Args:
        seed: decides everything.
        seconds: how long an unharmed update takes here.
        counts: system calls of an unharmed update, by name; empty without strace.
        layout: of the install.
        disk: whether the world has a file system of its own that can be filled, cut off and mounted again.
        only: kinds of `WHATS` to choose among, empty for all.
    """
    dice = random.Random(seed)
    calls = [call for call in CALLS if counts.get(call)]
    wanted = {
        what: weight
        for what, weight in WHATS.items()
        if (not only or what in only) and (disk or what not in _NEEDS_DISK) and (calls or what != "eio")
    }
    what = dice.choices(list(wanted), list(wanted.values()))[0]
    whom: Whom = dice.choices(("tree", "parent", "child"), (6, 2, 2))[0] if what == "kill" else "tree"
    if what == "eio":
        call = dice.choice([call for call in calls if call in _FAILS])
        return Kill(seed=seed, how="call", what=what, call=call, number=dice.randint(1, counts[call]))
    chance = dice.random()
    if calls and whom != "child" and chance < 0.45 and what in ("kill", "power"):
        call = dice.choice(calls)
        return Kill(seed=seed, how="call", what=what, call=call, number=dice.randint(1, counts[call]))
    if whom != "child" and chance < 0.7 and what in ("kill", "power"):
        return Kill(seed=seed, how="instant", what=what, whom=whom, after=dice.uniform(0.05, 0.9 * seconds))
    stages = STAGES[layout]
    stage = dice.choice(stages[stages.index("commit") + 1 :] if whom == "child" else stages)
    after = 0.0 if stage == "verify" else dice.choice((0.0, dice.uniform(0.0, 0.5)))
    return Kill(seed=seed, how="stage", what=what, whom=whom, stage=stage, after=after)
