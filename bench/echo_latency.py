"""Keypress to echo in the shell while an update streams its lines above the prompt.

    ./run bench echo_latency [--keys N] [--rate EVENTS_PER_S] [--json]

The shell is the real program on a real pty. The update is a launcher that replays wire events at a steady rate, many times faster than a
real one speaks. `cpu_ms_per_key` is the shell's own work between keypress and echo: what the echo takes on a machine that is not busy
with something else. Ends with 1 when the 95th percentile is over 30 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pexpect
import psutil

LIMIT_MS: Final = 30.0

LAUNCHER: Final = """\
#!{python}
import json, sys, time
end, number = time.monotonic() + {seconds}, 0
while time.monotonic() < end:
    number += 1
    event = dict(kind="notice", text=f"line {{number}} of the update", warning=False, copy="",
                 copy_terminal=f"  line {{number}} of the update")
    print(json.dumps(event), flush=True)
    time.sleep(1 / {rate})
"""


def home_with_launcher(folder: Path, rate: float, seconds: float) -> Path:
    """A scratch home whose `bin/nedura update` streams."""
    (folder / "bin").mkdir()
    launcher = folder / "bin" / "nedura"
    launcher.write_text(LAUNCHER.format(python=sys.executable, rate=rate, seconds=seconds))
    launcher.chmod(0o755)
    return folder


def until(child: pexpect.spawn, wanted: bytes, timeout: float = 20.0) -> None:
    """Read until a text came."""
    seen, deadline = b"", time.monotonic() + timeout
    while wanted not in seen:
        if time.monotonic() > deadline:
            raise SystemExit(f"{wanted!r} did not come: {seen[-300:]!r}")
        try:
            seen += child.read_nonblocking(65536, timeout=0.5)
        except pexpect.TIMEOUT:
            continue


def drain(child: pexpect.spawn, seconds: float) -> int:
    """Read for a while; how many lines of the update came."""
    seen, deadline = b"", time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            seen += child.read_nonblocking(65536, timeout=0.01)
        except pexpect.TIMEOUT:
            continue
    return seen.count(b"of the update")


def press(child: pexpect.spawn, key: str) -> float:
    """Milliseconds from a keypress to its echo. The key stands nowhere else on the screen."""
    start = time.perf_counter()
    child.send(key)
    deadline = start + 5
    wanted = key.encode()
    while time.perf_counter() < deadline:
        try:
            if wanted in child.read_nonblocking(65536, timeout=0.005):
                return (time.perf_counter() - start) * 1000
        except pexpect.TIMEOUT:
            continue
    raise SystemExit(f"{key!r} was not echoed in 5 s")


def main() -> int:
    """Type while it streams."""
    parser = argparse.ArgumentParser(prog="./run bench echo_latency")
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nedura-echo-") as folder:
        home = home_with_launcher(Path(folder), args.rate, args.keys * 0.15 + 15)
        environ = {
            **os.environ,
            "NEDURA_HOME": str(home),
            "TERM": "xterm-256color",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        child = pexpect.spawn(sys.executable, ["-m", "nedura_cli"], env=environ, dimensions=(30, 100))
        child.delaybeforesend = None  # pexpect waits 50 ms before it types, which would be measured
        try:
            cpu = 0.0
            until(child, b"/help")
            drain(child, 1.0)
            child.send("/update\r")
            until(child, b"of the update")
            times, lines, process = [], 0, psutil.Process(child.pid)
            for number in range(args.keys):
                before = sum(process.cpu_times()[:2])
                times.append(press(child, "QZXJ"[number % 4]))
                cpu += sum(process.cpu_times()[:2]) - before
                child.send("\x15")  # an empty line again: a redraw must not show an old key
                lines += drain(child, 0.15)
            child.send("\x04")
        finally:
            child.close(force=True)
    times.sort()
    result = {
        "keys": len(times),
        "median_ms": round(statistics.median(times), 1),
        "p95_ms": round(times[int(len(times) * 0.95)], 1),
        "max_ms": round(times[-1], 1),
        "cpu_ms_per_key": round(1000 * cpu / len(times), 1),
        "update_lines_meanwhile": lines,
        "limit_ms": LIMIT_MS,
    }
    print(
        json.dumps(result) if args.json else "\n".join(f"{key:<24}{value}" for key, value in result.items())
    )
    return int(result["p95_ms"] > LIMIT_MS)


if __name__ == "__main__":
    raise SystemExit(main())
