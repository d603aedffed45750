"""From a cancel to `Cancelled`, at a random moment of a sign-in with an interval of 5 s. `./run bench signin_cancel [--runs N] [--json]`

A third of the runs is cancelled in the wait, a third in a request that the portal holds for 30 s, a third anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from nedura.signin import Cancelled, run_sign_in
from nedura.testing.portal import Fault, Knobs, Portal, serve_portal


async def one(url: str, home: Path, after: float) -> float:
    """Seconds from the cancel to the state."""
    loop = asyncio.get_running_loop()
    since: list[float] = []
    loop.call_later(after, lambda: since.append(loop.time()))
    environ = {"NEDURA_PORTAL_BASE_URL": url, "HOME": str(home)}
    async with aclosing(run_sign_in(home=home, environ=environ, cancelled=lambda: bool(since))) as states:
        last = [state async for state in states][-1]
    end = loop.time()
    assert isinstance(last, Cancelled), last
    assert not (home / "auth.json").exists()
    return end - since[0]


async def batch(kind: str, runs: int, width: int, chance: random.Random, folder: Path) -> list[float]:
    portal = Portal(knobs=Knobs(interval=5))
    if kind == "held":
        portal.plant(Fault(route="device_code", delay=30, times=-1))
    found: list[float] = []
    async with serve_portal(portal) as server:
        for start in range(0, runs, width):
            homes = [folder / f"{kind}{start + number}" for number in range(min(width, runs - start))]
            low = 0.0 if kind == "anywhere" else 0.3
            found += await asyncio.gather(
                *(one(server.url, home, chance.uniform(low, 1.0)) for home in homes)
            )
    return found


async def measure(runs: int, width: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    waits: list[float] = []
    with tempfile.TemporaryDirectory(prefix="nedura-bench-") as folder:
        for kind in ("wait", "held", "anywhere"):
            waits += await batch(kind, runs // 3, width, chance, Path(folder))
    waits.sort()
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    return {
        "runs": len(waits),
        "interval_s": 5,
        "cancel_median_ms": round(statistics.median(waits) * 1000, 1),
        "cancel_p99_ms": round(p99 * 1000, 1),
        "cancel_max_ms": round(waits[-1] * 1000, 1),
        "p99_under_100_ms": p99 < 0.1,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--width", type=int, default=1, help="sign-ins under way at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result = asyncio.run(measure(given.runs, given.width, given.seed))
    print(
        json.dumps(result) if given.json else "\n".join(f"{name}: {value}" for name, value in result.items())
    )
    return 0 if result["p99_under_100_ms"] else 1


if __name__ == "__main__":
    sys.exit(main())
