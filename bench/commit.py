"""The commit of a sealed install: one rename with everything durable. Goal: under 5 ms at the 99th percentile."""

from __future__ import annotations

import argparse
import sys
import threading
import time

from bench._repos import scratch, tell, timed
from bench._sealed import prepare_once
from nedura.testing.installs import make_site
from nedura.update.commit.sealed import commit_sealed, take_back


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    args = parser.parse_args()
    with scratch() as folder:
        site = make_site(folder)
        first = site.paths.pointed()
        site.origin.commit({"toy/value.py": "VALUE = 2\n"})
        run = prepare_once(site)
        assert run.candidate is not None
        candidate = run.candidate
        bad, reads, stop = [0], [0], threading.Event()

        def read() -> None:
            while not stop.is_set():
                reads[0] += 1
                if site.paths.pointed() is None:
                    bad[0] += 1
                time.sleep(0)

        reader = threading.Thread(target=read)
        reader.start()
        times = []
        try:
            for _ in range(args.flips):
                times.append(timed(lambda: commit_sealed(site.paths, candidate)))
                take_back(site.paths, first)
        finally:
            stop.set()
            reader.join()
    times.sort()
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    facts: dict[str, float | int | str | bool] = {
        "flips": args.flips, "p50_ms": round(p50 * 1000, 2), "p99_ms": round(p99 * 1000, 2), "goal_p99_ms": 5.0,
        "reads": reads[0], "gaps": bad[0],
    }  # fmt: skip
    return tell("commit", facts, p99 < 0.005 and not bad[0])


if __name__ == "__main__":
    sys.exit(main())
