"""Which update is killed where: a pure function of the seed, so that a violation can be repeated."""

from __future__ import annotations

import random
from typing import Final, Literal

import attrs

__all__ = ["CALLS", "Kill", "plan_kill"]

CALLS: Final = ("fsync", "rename", "execve", "symlink", "unlink", "write")
Whom = Literal["tree", "parent", "child"]


@attrs.frozen(kw_only=True)
class Kill:
    """One kill.

    Attributes:
        seed: what made it.
        how: `instant` (seconds after the start) or `call` (the n-th such system call of the updater tree), or `signal` (SIGINT).
        whom: the whole tree, only the parent, only the completion child.
        after: seconds.
        call, number: system call and which one.
    """

    seed: int
    how: Literal["instant", "call", "signal"]
    whom: Whom = "tree"
    after: float = 0.0
    call: str = ""
    number: int = 0

    @property
    def name(self) -> str:
        """For people."""
        where = f"{self.call} #{self.number}" if self.how == "call" else f"{self.after:.3f} s"
        return f"{self.how} {self.whom} at {where}"


def plan_kill(seed: int, seconds: float, counts: dict[str, int]) -> Kill:
    """Choose one.

    Args:
        seed: decides everything.
        seconds: how long an unharmed update takes here.
        counts: system calls of an unharmed update, by name; empty without strace.
    """
    dice = random.Random(seed)
    whom: Whom = dice.choices(("tree", "parent", "child"), (6, 2, 2))[0]
    if dice.random() < 0.1:
        return Kill(seed=seed, how="signal", whom="parent", after=dice.uniform(0.05, seconds))
    calls = [call for call in CALLS if counts.get(call)]
    if calls and dice.random() < 0.5:
        call = dice.choice(calls)
        return Kill(seed=seed, how="call", call=call, number=dice.randint(1, counts[call]))
    return Kill(seed=seed, how="instant", whom=whom, after=dice.uniform(0.05, seconds))
