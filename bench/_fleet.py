"""Crowds of processes for the fleet's measurements."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nedura.fleet import ask_now

ROOT = Path(__file__).resolve().parents[1]
HANDLER = "nedura.testing.handlers:slow_words"


@contextmanager
def sleepers(count: int) -> Iterator[None]:
    """So many other processes, with ordinary long command lines."""
    code = (
        "import os, signal, sys\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    if os.fork() == 0:\n"
        "        os.execv('/bin/sleep', ['sleep', '600'])\n"
        "print('x', flush=True)\n"
        "sys.stdin.read()\n"
        "os.killpg(0, signal.SIGKILL)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    parent.stdout.readline()
    try:
        yield
    finally:
        parent.communicate()


def _environ(home: Path) -> dict[str, str]:
    keep = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    return {**keep, "HOME": str(home), "NEDURA_HOME": str(home), "PYTHONPATH": str(ROOT)}


@contextmanager
def gateways(root: Path, count: int, handler: str = HANDLER) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many live gateways on profiles of one root."""
    homes = [root / "profiles" / f"p{number:02}" for number in range(count)]
    processes = []
    try:
        for start in range(0, count, 4):
            for home in homes[start : start + 4]:
                home.mkdir(parents=True, mode=0o700)
                command = [sys.executable, "-m", "nedura_gateway", "--handler", handler]
                processes.append(
                    subprocess.Popen(command, env=_environ(home), cwd=ROOT, stderr=subprocess.DEVNULL)
                )
            for home in homes[start : start + 4]:
                wait_serving(home)
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def wait_serving(home: Path, timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while (ask_now(home, "identify") or {}).get("gateway_state") != "running":
        if time.monotonic() > end:
            raise SystemExit(f"the gateway of {home} does not come up")
        time.sleep(0.05)


def timed(work: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each round."""
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return spent


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="nfl-", dir="/tmp") as folder:
        yield Path(folder)


def parser(text: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=text)
    made.add_argument("--json", action="store_true")
    return made


def report(name: str, facts: dict[str, Any], limits: dict[str, float], *, as_json: bool) -> int:
    """Print the result; exit 1 when a limit is broken. Each limit is an upper bound of the fact of that name."""
    broken = {key: limit for key, limit in limits.items() if facts[key] > limit}
    if as_json:
        print(json.dumps({"bench": name, **facts, "limits": limits, "ok": not broken}))
    else:
        for key, value in facts.items():
            limit = f"   limit {limits[key]:g}" if key in limits else ""
            print(
                f"{key:<34} {value:>12.3f}{limit}"
                if isinstance(value, float)
                else f"{key:<34} {value!s:>12}{limit}"
            )
        print("ok" if not broken else f"BROKEN: {', '.join(broken)}")
    return 1 if broken else 0


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
