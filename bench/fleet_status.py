"""`nedura fleet status` as a whole command: 50 live gateways beside 2,000 other processes.

`./run bench fleet_status [--gateways N] [--processes N] [--json]`. Limit: 0.5 s.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

from bench._fleet import ROOT, _environ, gateways, median, parser, report, scratch, sleepers, timed


def used() -> float:
    """CPU seconds of the children so far: what a busy machine does not blur."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--gateways", type=int, default=50)
    arguments.add_argument("--processes", type=int, default=2000)
    arguments.add_argument("--rounds", type=int, default=7)
    options = arguments.parse_args()
    rows: list[int] = []
    with scratch() as root, gateways(root, options.gateways), sleepers(options.processes):

        def look() -> None:
            command = [sys.executable, "-m", "nedura_cli", "fleet", "status", "--json"]
            result = subprocess.run(command, env=_environ(root), cwd=ROOT, capture_output=True, check=True)
            status = json.loads(result.stdout)
            rows.append(sum(row["source"] == "socket" for row in status["rows"]))

        look()
        before = used()
        spent = timed(look, options.rounds)
        cpu = (used() - before) / options.rounds
        bare = timed(
            lambda: subprocess.run([sys.executable, "-c", "pass"], env=_environ(root), check=True),
            options.rounds,
        )
    if set(rows) != {options.gateways}:
        raise SystemExit(f"rows answered by socket: {rows}")
    facts = {
        "gateways": options.gateways,
        "other_processes": options.processes,
        "fleet_status_s": median(spent),
        "fastest_s": min(spent),
        "slowest_s": max(spent),
        "cpu_s_of_one_look": cpu,
        "python_pass_s": median(bare),
    }
    return report("fleet_status", facts, {"fleet_status_s": 0.5}, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
