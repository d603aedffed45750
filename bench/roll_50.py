"""Fifty gateways with running turns: drained, restarted and verified, against the slowest single one of them, and against one alone.

`slowest_member_s` is that member's own time within the roll, where fifty boots share the cores; `alone_s` is one member by itself, with
the same turn before it. Every turn has all of its seconds to go when a roll begins.

./run bench roll_50 [--count 50] [--turn 2] [--width 50] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from bench._managed import host_of, inside, members_of, parts
from nedura.fleet import MemberFailed, MemberRestarted, Runtime, restart_rest
from tests.integration.restart.daemon import identity
from tests.system.restart.host import Host, systemctl

LIMIT = 1.5
"""Of the slowest single member's time."""


async def rolled(
    members: list[Runtime], version: str, width: int
) -> tuple[float, list[MemberRestarted], list[MemberFailed]]:
    start = time.monotonic()
    done: list[MemberRestarted] = []
    failed: list[MemberFailed] = []
    async with aclosing(restart_rest(members, identity(version), parts=parts(), width=width)) as events:
        async for event in events:
            if isinstance(event, MemberRestarted):
                done.append(event)
            elif isinstance(event, MemberFailed):
                failed.append(event)
    return time.monotonic() - start, done, failed


@contextmanager
def turns_held(gate: Path) -> Iterator[None]:
    """While it lasts a turn that began waits, asleep; at its end every one of them has all of its seconds before it."""
    with open(gate, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def busy(host: Host, names: list[str]) -> list[Runtime]:
    """The members once each runs its turn."""
    async with asyncio.timeout(60):
        while True:
            members = await members_of(host, names)
            if all(member.active_turns == 1 for member in members):
                return members
            await asyncio.sleep(0.05)


async def measure(count: int, turn: float, width: int) -> dict[str, Any]:
    gate = Path(os.environ["XDG_RUNTIME_DIR"]) / "turns-held"
    with turns_held(gate):
        host, names = host_of(count, turn=str(turn), command=f"exec flock -s {gate} true")
        everybody = await busy(host, names)
        host.release("2")
    alone, first, _ = await rolled(everybody[:1], "2", 1)
    with turns_held(gate):
        systemctl("restart", *[f"nedura-gateway-{name}.service" for name in names])
        members = await busy(host, names)
        host.release("3")
    total, done, failed = await rolled(members, "3", width)
    slowest = max(event.downtime_ms for event in done) / 1000
    return {
        "count": count, "turn_s": turn, "width": width, "turns_running_at_start": sum(one.active_turns for one in members),
        "restarted": len(done), "failed": [event.reason for event in failed],
        "total_s": round(total, 2), "slowest_member_s": round(slowest, 2), "ratio_to_slowest": round(total / slowest, 2),
        "alone_s": round(alone, 2), "alone_member_s": first[0].downtime_ms / 1000, "ratio_to_alone": round(total / alone, 2),
        "sequential_floor_s": count * turn, "ok": not failed and len(done) == count and total <= LIMIT * slowest,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--turn", type=float, default=2.0)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    inside("bench.roll_50", sys.argv[1:])
    found = asyncio.run(measure(args.count, args.turn, args.width))
    if args.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key:24} {value}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
