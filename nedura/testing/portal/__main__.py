"""`python -m nedura.testing.portal`: the portal as its own process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from nedura.records import write_json
from nedura.testing.portal.core import Portal
from nedura.testing.portal.knobs import Knobs
from nedura.testing.portal.server import PortalServer, run_portal

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nedura.testing.portal", description="Run the development portal."
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--ready-file", type=Path, metavar="F", help='written once it answers: {"url", "port", "pid"}'
    )
    parser.add_argument("--log-file", type=Path, metavar="F", help="request log, JSON lines")
    parser.add_argument(
        "--approve", default="", metavar="EMAIL", help="approve every code at once as this account"
    )
    parser.add_argument(
        "--interval", type=int, default=5, metavar="SECONDS", help="polling interval it names"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one portal."""
    args = _parser().parse_args(argv)
    portal = Portal(knobs=Knobs(auto_approve=args.approve, interval=args.interval))
    if args.log_file is not None:
        portal.log_to(args.log_file)

    def ready(server: PortalServer) -> None:
        if args.ready_file is None:
            os.write(1, f"{server.url}\n".encode())
        else:
            write_json(args.ready_file, {"url": server.url, "port": server.port, "pid": os.getpid()})

    asyncio.run(run_portal(portal, args.port, ready=ready))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
