"""The process scan among 2,000 others, beside a bare read of every /proc/*/cmdline in the same run.

`./run bench scan [--processes N] [--json]`. Limit: 1.5 x the bare read.
"""

from __future__ import annotations

import os
import sys
import time

from bench._fleet import median, parser, report, sleepers
from nedura.fleet.identity import classify, needle_for
from nedura.fleet.processes import ProcFs


def bare() -> int:
    """Read every command line and do nothing with it."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                handle = os.open(f"/proc/{name}/cmdline", os.O_RDONLY)
            except OSError:
                continue
            os.read(handle, 65536)
            os.close(handle)
            count += 1
    return count


def scan() -> int:
    """What the inventory does: read, pre-filter, classify what is left."""
    found = 0
    for _, argv in ProcFs().matching(needle_for()):
        found += classify(argv).gateway_run is True
    return found


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--processes", type=int, default=2000)
    arguments.add_argument("--rounds", type=int, default=30)
    options = arguments.parse_args()
    reads: list[float] = []
    scans: list[float] = []
    with sleepers(options.processes):
        scan(), bare()
        for _ in range(options.rounds):
            for work, spent in ((bare, reads), (scan, scans)):
                start = time.perf_counter()
                work()
                spent.append(time.perf_counter() - start)
        seen = bare()
    facts = {
        "processes": seen,
        "bare_read_ms": median(reads) * 1000,
        "scan_ms": median(scans) * 1000,
        "ratio": median(scans) / median(reads),
        "ratio_of_minima": min(scans) / min(reads),
    }
    return report("scan", facts, {"ratio": 1.5}, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
