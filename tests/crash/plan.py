"""Which update is struck where, and by what: a pure function of the seed and of one measured update, so that it can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Final, Literal

import attrs

from tests.crash.trace import START, Reach

__all__ = [
    "KINDS",
    "STAGES",
    "WHATS",
    "Cell",
    "Kill",
    "Measured",
    "Round",
    "What",
    "Whom",
    "cycle_of",
    "plan_round",
]

STAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "sealed": (
        START, "plan", "snapshot", "prepare", "validate", "commit", "first_member", "maintenance", "restart", "verify",
    ),
    "checkout": (
        START, "plan", "snapshot", "prepare", "validate", "commit", "build", "maintenance", "restart", "verify",
    ),
}  # fmt: skip
"""The stages that an update announces, by layout, and what is before the first."""
Whom = Literal["tree", "parent", "child"]
How = Literal["instant", "call", "stage"]
What = Literal["kill", "power", "sigint", "full", "readonly", "eio"]
Cell = tuple[What, Whom, str]

KINDS: Final[tuple[tuple[What, Whom, int], ...]] = (
    ("kill", "tree", 8), ("kill", "parent", 2), ("kill", "child", 2), ("power", "tree", 3), ("sigint", "tree", 1),
    ("full", "tree", 1), ("readonly", "tree", 1), ("eio", "tree", 1),
)  # fmt: skip
"""What strikes whom, and how often in each stage of one cycle."""
WHATS: Final[tuple[What, ...]] = ("kill", "power", "sigint", "full", "readonly", "eio")
_NEEDS_DISK: Final = frozenset({"power", "full", "readonly"})
_FAILS: Final = ("fsync", "rename", "symlink")
_EXTRA: Final = ((0, 1, 2, 3), (45, 30, 15, 10))
"""How many further updates of a round are struck before one may heal, and how often of 100."""
_LAUNCH_SHARE: Final = 0.4


@attrs.frozen(kw_only=True)
class Kill:
    """One strike.

    Attributes:
        seed: what made it.
        how: `instant` (seconds after the start), `call` (a system call of a process of the updater tree), or `stage` (seconds after a
            stage was announced).
        what: SIGKILL, a power cut, SIGINT, a full disk, a home that can only be read, or EIO from that call.
        whom: the whole tree, only the parent, only the completion child.
        after: seconds.
        call, number: system call and which one.
        since: stage from whose announcement the calls are counted, `start` for the beginning.
        stage: stage that it aims at.
    """

    seed: int
    how: How
    what: What = "kill"
    whom: Whom = "tree"
    after: float = 0.0
    call: str = ""
    number: int = 0
    since: str = START
    stage: str = START

    @property
    def name(self) -> str:
        """For people."""
        where = {
            "call": f"{self.call} #{self.number} since {self.since}",
            "instant": f"{self.after:.3f} s",
            "stage": f"{self.stage} + {self.after:.3f} s",
        }[self.how]
        return f"{self.what} {self.whom} at {where}"

    @property
    def kind(self) -> str:
        """What strikes whom, for counting."""
        return f"{self.what} {self.whom}" if self.what == "kill" else self.what


@attrs.frozen(kw_only=True)
class Measured:
    """One unharmed update of this world.

    Attributes:
        seconds: how long it takes, untraced.
        lengths: seconds of each stage, untraced.
        reach: its system calls by stage, empty without strace.
        launch: seconds of an unharmed launch.
    """

    seconds: float = 2.5
    lengths: Mapping[str, float] = attrs.field(factory=dict)
    reach: Reach = attrs.field(factory=dict)
    launch: float = 0.4

    def calls(self, stage: str, names: Collection[str] = ()) -> list[tuple[str, str, int]]:
        """(since, call, number) of every system call of a stage that can be struck."""
        return [
            (since, call, number)
            for since, calls in self.reach.get(stage, {}).items()
            for call, numbers in calls.items()
            if not names or call in names
            for number in numbers
        ]


@attrs.frozen(kw_only=True)
class Round:
    """One run of the harness: updates to one version that are struck one after the other, then one that must heal.

    Attributes:
        kills: strikes of the updates.
        launches: for each of them, the strike of the launch that follows, or None. `after` is a share of that launch's length.
    """

    kills: tuple[Kill, ...]
    launches: tuple[Kill | None, ...]

    @property
    def name(self) -> str:
        """For people."""
        names = []
        for kill, launch in zip(self.kills, self.launches, strict=True):
            names += [kill.name, *([f"launch: {launch.name}"] if launch else [])]
        return "; ".join(names)


def cycle_of(layout: str, measured: Measured, *, disk: bool, only: Collection[str] = ()) -> list[Cell]:
    """Every pair of kind and stage that exists here, in one mixed order: as many seeds in a row hit every pair."""
    stages = STAGES[layout]
    cells: list[Cell] = []
    for what, whom, times in KINDS:
        if (only and what not in only) or (what in _NEEDS_DISK and not disk):
            continue
        for stage in stages[stages.index("commit") + 1 :] if whom == "child" else stages:
            if what != "eio" or measured.calls(stage, _FAILS):
                cells += [(what, whom, stage)] * times
    random.Random(layout).shuffle(cells)
    return cells


def plan_round(
    seed: int, measured: Measured, *, layout: str = "sealed", disk: bool = False, only: Collection[str] = ()
) -> Round:
    """Choose one.

    Args:
        seed: decides everything.
        measured: an unharmed update.
        layout: of the install.
        disk: whether the world has a file system of its own that can be filled, cut off and mounted again.
        only: kinds of `WHATS` to choose among, empty for all.
    """
    dice = random.Random(seed)
    cycle = cycle_of(layout, measured, disk=disk, only=only)
    kills = [_strike(seed, dice, cycle[seed % len(cycle)], measured)]
    hard = cycle_of(layout, measured, disk=disk, only={"kill", "power"})
    more = dice.choices(*_EXTRA)[0]
    kills += [_strike(seed, dice, dice.choice(hard), measured) for _ in range(more)]
    launches = [_launch(seed, dice) if dice.random() < _LAUNCH_SHARE else None for _ in kills]
    return Round(kills=tuple(kills), launches=tuple(launches))


def _strike(seed: int, dice: random.Random, cell: Cell, measured: Measured) -> Kill:
    what, whom, stage = cell
    calls = measured.calls(stage, _FAILS if what == "eio" else ())
    by_call = what == "eio" or (what in ("kill", "power") and whom == "tree" and dice.random() < 0.5)
    if by_call and calls:
        name = dice.choice(sorted({call for _, call, _ in calls}))  # else every second one is a write
        since, call, number = dice.choice([one for one in calls if one[1] == name])
        return Kill(
            seed=seed, how="call", what=what, whom=whom, call=call, number=number, since=since, stage=stage
        )
    length = measured.lengths.get(stage, 0.1)
    after = 0.0 if dice.random() < 0.2 else dice.uniform(0.0, 0.9 * length)
    how: How = "instant" if stage == START else "stage"
    return Kill(seed=seed, how=how, what=what, whom=whom, after=after, stage=stage)


def _launch(seed: int, dice: random.Random) -> Kill:
    whom: Whom = dice.choice(("tree", "tree", "parent"))
    if dice.random() < 0.5:
        call, most = dice.choice((("fsync", 12), ("rename", 6), ("unlink", 4), ("execve", 2), ("write", 8)))
        return Kill(seed=seed, how="call", call=call, number=dice.randint(1, most))
    return Kill(seed=seed, how="instant", whom=whom, after=dice.uniform(0.05, 0.95))
