"""What an idle gateway costs: resident memory and CPU.

`./run bench idle_gateway [--seconds S] [--json]`. Limits: 45 MB RSS, 0.2 % of a core.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench._fleet import gateways, parser, report, scratch


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_nanoseconds(pid: int) -> int:
    """Run time of every thread, in nanoseconds, where the kernel counts it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit("no VmRSS")


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument(
        "--seconds", type=float, default=70.0, help="longer than a minute: the re-stamp counts"
    )
    options = arguments.parse_args()
    with scratch() as root, gateways(root, 1) as processes:
        pid = processes[0].pid
        time.sleep(2)
        ticks, nanos = cpu_seconds(pid), cpu_nanoseconds(pid)
        time.sleep(options.seconds)
        share = (cpu_nanoseconds(pid) - nanos) / 1e9 / options.seconds * 100
        coarse = (cpu_seconds(pid) - ticks) / options.seconds * 100
        facts = {
            "rss_mb": resident(pid),
            "cpu_percent_of_a_core": share,
            "cpu_percent_by_ticks": coarse,
            "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
            "seconds": options.seconds,
        }
    return report("idle_gateway", facts, {"rss_mb": 45.0, "cpu_percent_of_a_core": 0.2}, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
