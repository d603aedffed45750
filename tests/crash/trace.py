"""What a trace of an unharmed update says: which n-th system call is made in which stage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

__all__ = ["CALLS", "START", "Reach", "family", "reach_of"]

CALLS: Final = ("fsync", "rename", "execve", "symlink", "unlink", "write")
START: Final = "start"
"""Before the first stage is announced."""
Reach = Mapping[str, Mapping[str, Mapping[str, tuple[int, ...]]]]
"""Stage -> stage from whose announcement is counted (`start`: from the beginning) -> call -> numbers that fall into the first."""

_FAMILIES: Final = {
    "rename": "rename,renameat,renameat2",
    "symlink": "symlink,symlinkat",
    "unlink": "unlink,unlinkat",
}
_LINE: Final = re.compile(r"^(\d+)\s+(\w+)\(")
_STAGE: Final = re.compile(r'write\(1, "\{\\"kind\\":\\"stage_started\\",\\"stage\\":\\"(\w+)\\"')


def family(call: str) -> str:
    """Every name of a system call, as strace takes them."""
    return _FAMILIES.get(call, call)


def _steps(lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(stage, thread, call) of every call, in order."""
    names = {name: call for call in CALLS for name in family(call).split(",")}
    stage = START
    for line in lines:
        found = _LINE.match(line)
        if not found or found[2] not in names:
            continue
        announced = _STAGE.search(line)
        if announced:
            stage = announced[1]
        yield stage, found[1], names[found[2]]


def reach_of(text: str) -> Reach:
    """Which numbers strike in which stage.

    strace counts every thread by itself and strikes the first that gets as far, so number N strikes where the first of all threads
    makes its N-th such call, counted from the beginning or from the announcement of a stage.

    Args:
        text: `strace -f -s 80` of an update that prints its events as JSON lines.
    """
    steps = list(_steps(text.splitlines()))
    order = list(dict.fromkeys(stage for stage, _, _ in steps))
    found: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {stage: {} for stage in order}
    for place, since in enumerate(order):
        for stage, calls in _first(steps, since).items():
            if since == START or order.index(stage) - place <= 1:
                found[stage][since] = calls
    return found


def _first(steps: Sequence[tuple[str, str, str]], since: str) -> dict[str, dict[str, tuple[int, ...]]]:
    """Stage -> call -> numbers, counted from a stage on."""
    begun, made, best = False, Counter[tuple[str, str]](), Counter[str]()
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for stage, thread, call in steps:
        begun = begun or stage == since
        if not begun:
            continue
        made[thread, call] += 1
        number = made[thread, call]
        if number > best[call]:
            best[call] = number
            calls = found.setdefault(stage, {})
            calls[call] = (*calls.get(call, ()), number)
    return found
