"""How fast the control socket answers while 100 turns stream through the gateway.

`./run bench socket_latency [--turns N] [--requests N] [--json]`. Limit: p99 5 ms.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from bench._fleet import gateways, parser, percentile, report, scratch
from nedura.fleet import ask_now, find_socket


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--turns", type=int, default=100)
    arguments.add_argument("--requests", type=int, default=1000)
    options = arguments.parse_args()
    with scratch() as root, gateways(root, 1):
        home = root / "profiles" / "p00"
        path = find_socket(home, "chat", os.environ)
        if path is None:
            raise SystemExit("no chat socket")
        links = []
        for number in range(options.turns):
            link = socket.socket(socket.AF_UNIX)
            link.connect(str(path))
            link.sendall(json.dumps({"text": "60", "chat": f"c{number}"}).encode() + b"\n")
            links.append(link)
        stop = threading.Event()
        pieces = [0]
        reader = threading.Thread(target=_drain, args=(links, stop, pieces))
        reader.start()
        while (ask_now(home, "identify") or {}).get("active_agents") != options.turns:
            time.sleep(0.05)
        spent = []
        start_pieces, start = pieces[0], time.perf_counter()
        for _ in range(options.requests):
            begin = time.perf_counter()
            answer = ask_now(home, "identify")
            spent.append((time.perf_counter() - begin) * 1000)
            if answer is None:
                raise SystemExit("no answer")
            time.sleep(0.002)
        rate = (pieces[0] - start_pieces) / (time.perf_counter() - start)
        stop.set()
        reader.join()
        for link in links:
            link.close()
    facts = {
        "turns": options.turns,
        "reads_of_streams_per_s": rate,
        "p50_ms": percentile(spent, 0.5),
        "p99_ms": percentile(spent, 0.99),
        "worst_ms": max(spent),
    }
    return report("socket_latency", facts, {"p99_ms": 5.0}, as_json=options.json)


def _drain(links: list[socket.socket], stop: threading.Event, pieces: list[int]) -> None:
    import selectors

    selector = selectors.DefaultSelector()
    for link in links:
        selector.register(link, selectors.EVENT_READ)
    while not stop.is_set():
        for key, _ in selector.select(0.2):
            pieces[0] += bool(key.fileobj.recv(65536))  # type: ignore[union-attr]
        time.sleep(0.01)
    selector.close()


if __name__ == "__main__":
    sys.exit(main())
