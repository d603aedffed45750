"""What a restart by nedura costs over a bare `systemctl restart` of the same unit, one unit after another.

./run bench unit_overhead [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time

from bench._managed import host_of, inside, members_of, parts
from nedura.fleet import MemberRestarted, restart_rest
from tests.integration.restart.daemon import identity

UNIT = "nedura-gateway-p00.service"
LIMIT_MS = 50.0


async def measure(rounds: int) -> dict[str, float | bool]:
    host, names = host_of(1)
    bare, ours = [], []
    for _ in range(rounds):
        start = time.monotonic()
        subprocess.run(["systemctl", "--user", "restart", UNIT], check=True)
        bare.append(time.monotonic() - start)
        (member,) = await members_of(host, names)
        start = time.monotonic()
        events = [event async for event in restart_rest([member], identity("1"), parts=parts())]
        ours.append(time.monotonic() - start)
        assert isinstance(events[-1], MemberRestarted), events
    low, high = statistics.median(bare), statistics.median(ours)
    return {"bare_ms": round(low * 1000, 1), "nedura_ms": round(high * 1000, 1), "overhead_ms": round((high - low) * 1000, 1),
            "rounds": rounds, "ok": (high - low) * 1000 < LIMIT_MS}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    inside("bench.unit_overhead", sys.argv[1:])
    found = asyncio.run(measure(args.rounds))
    print(json.dumps(found) if args.json else "\n".join(f"{key:12} {value}" for key, value in found.items()))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
