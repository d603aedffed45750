"""`nedura gateway setup`: three questions, then what `gateway install` does."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing

from nedura.errors import UsageError
from nedura.fleet import ServiceRow
from nedura.fleet import gateway_services as services_of
from nedura.homes import process_home
from nedura_cli.ask import ask_yes, can_ask
from nedura_cli.gateway import run_verb, scope_of
from nedura_cli.output import Output

__all__ = ["setup"]


def setup(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway setup`: says how the service stands, asks, and installs.

    Raises:
        UsageError: nobody is there to answer.
    """
    if not can_ask(output):
        raise UsageError(
            "gateway setup asks questions, and nobody is at the terminal.",
            advice="Run: nedura gateway install",
        )
    services = services_of(process_home(), run_as=args.run_as_user)
    services.check()
    installed = asyncio.run(_installed(args, output))
    question = "Write the service again?" if installed else "Install the gateway of this home as a service?"
    if not ask_yes(output, question):
        output.line("Nothing was changed. By hand it starts with: nedura gateway run")
        return 0
    enable = ask_yes(output, "Start it by itself from now on?")
    start = ask_yes(output, "Start it now?")
    stream = services.install(
        scope=scope_of(args), start=start, enable=enable, run_as=args.run_as_user, force=installed
    )
    return run_verb(stream, output)


async def _installed(args: argparse.Namespace, output: Output) -> bool:
    found = False
    async with aclosing(services_of(process_home()).status(scope=scope_of(args))) as events:
        async for event in events:
            output.event(event)
            found = found or (isinstance(event, ServiceRow) and bool(event.name))
    return found
