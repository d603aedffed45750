"""How long `nedura --version` and `nedura --help` take from nothing, against `python -c pass`.

    ./run bench cold_start [--runs N] [--json]

Ends with 1 when a median is over its limit: 4 and 6 times the bare interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Final

LIMITS: Final = {"--version": 4.0, "--help": 6.0}


def once(argv: list[str], environ: dict[str, str]) -> float:
    """Milliseconds of one start."""
    start = time.perf_counter()
    subprocess.run(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def main() -> int:
    """Measure in turn, so that a busy moment hits every row alike."""
    parser = argparse.ArgumentParser(prog="./run bench cold_start")
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEDURA_"))
    }
    commands = {"bare": [sys.executable, "-c", "pass"]}
    commands |= {flag: [sys.executable, "-m", "nedura_cli", flag] for flag in LIMITS}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for argv in commands.values():
        once(argv, environ)  # bytecode
    for _ in range(args.runs):
        for name, argv in commands.items():
            times[name].append(once(argv, environ))
    medians = {name: statistics.median(values) for name, values in times.items()}
    rows = [
        {
            "command": flag,
            "ms": round(medians[flag], 1),
            "times_bare": round(medians[flag] / medians["bare"], 2),
            "limit": limit,
        }
        for flag, limit in LIMITS.items()
    ]
    if args.json:
        print(json.dumps({"bare_ms": round(medians["bare"], 1), "rows": rows}))
    else:
        print(f"python -c pass   {medians['bare']:6.1f} ms")
        for row in rows:
            print(
                f"nedura {row['command']:<10}{row['ms']:6.1f} ms  {row['times_bare']:.2f} x (limit {row['limit']:.0f} x)"
            )
    return int(any(medians[flag] > limit * medians["bare"] for flag, limit in LIMITS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
