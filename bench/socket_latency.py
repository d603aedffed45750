"""How fast the control socket answers while 100 turns stream through the gateway.

`./run bench socket_latency [--turns N] [--requests N] [--json]`. Limit: p99 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import subprocess
import sys
import time

from bench._fleet import gateways, parser, percentile, report, scratch
from nedura.fleet import ask_now, find_socket


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--turns", type=int, default=100)
    arguments.add_argument("--requests", type=int, default=1000)
    arguments.add_argument("--read", metavar="SOCKET", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.read:
        return _read(options.read, options.turns)
    with scratch() as root, gateways(root, 1):
        home = root / "profiles" / "p00"
        path = find_socket(home, "chat", os.environ)
        if path is None:
            raise SystemExit("no chat socket")
        # the chats' users are a process of their own: in this one they would take the GIL from the clock
        command = [
            sys.executable,
            "-m",
            "bench.socket_latency",
            "--turns",
            str(options.turns),
            "--read",
            str(path),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
            while (ask_now(home, "identify") or {}).get("active_agents") != options.turns:
                time.sleep(0.05)
            spent = []
            start = time.perf_counter()
            for _ in range(options.requests):
                begin = time.perf_counter()
                answer = ask_now(home, "identify")
                spent.append((time.perf_counter() - begin) * 1000)
                if answer is None:
                    raise SystemExit("no answer")
                time.sleep(0.002)
            seconds = time.perf_counter() - start
            said, _ = readers.communicate()
    facts = {
        "turns": options.turns,
        "reads_of_streams_per_s": float(said.split()[0]),
        "seconds": seconds,
        "p50_ms": percentile(spent, 0.5),
        "p99_ms": percentile(spent, 0.99),
        "worst_ms": max(spent),
    }
    return report("socket_latency", facts, {"p99_ms": 5.0}, as_json=options.json)


def _read(path: str, turns: int) -> int:
    """Open the chats and read them until standard input ends; say how many reads a second that was."""
    selector = selectors.DefaultSelector()
    for number in range(turns):
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        link.sendall(json.dumps({"text": "60", "chat": f"c{number}"}).encode() + b"\n")
        selector.register(link, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    pieces, start = 0, time.perf_counter()
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                print(pieces / (time.perf_counter() - start))
                return 0
            pieces += bool(key.fileobj.recv(65536))  # type: ignore[union-attr]
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
