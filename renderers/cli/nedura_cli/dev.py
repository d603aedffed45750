"""`nedura dev portal`: a development portal for people."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nedura.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from nedura.testing.portal import PortalServer
    from nedura_cli.output import Output

_TESTING_MISSING = "The development portal needs nedura's testing extra."


def portal(args: argparse.Namespace, output: Output) -> int:
    """Serve until Ctrl-C; the address goes to the first line, each request to a line of its own."""
    try:
        from nedura.testing.portal import Knobs, LogEntry, Portal, run_portal
    except ImportError as error:  # starlette and uvicorn come with the extra
        raise UsageError(_TESTING_MISSING, advice='Run: pip install "nedura[testing]"') from error
    served = Portal(knobs=Knobs(auto_approve=args.approve, interval=args.interval))
    if args.log_file is not None:
        served.log_to(args.log_file)

    def ready(server: PortalServer) -> None:
        output.record({"kind": "portal", "url": server.url, "port": server.port})
        output.line(f"Development portal: {server.url}")
        output.line(f"  use it:  NEDURA_PORTAL_BASE_URL={server.url} nedura auth upgrade")
        output.line(f"  approve: {server.url}/device")
        output.line("Stop it with Ctrl-C.")

    def request(entry: LogEntry) -> None:
        outcome = f"{entry.status or 'dropped'} {entry.error}".strip()
        output.line(f"  {entry.method} {entry.path}  {outcome}")

    served.log.listener = request
    asyncio.run(run_portal(served, args.port, ready=ready))
    return 0
