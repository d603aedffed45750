"""Grammar of the `gateway` commands: the chat gateway as a process and as a service."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser. A bare `gateway` is `gateway run`."""
    gateway = commands.add_parser("gateway", help="run and manage the chat gateway")
    _run_flags(gateway)
    gateway.set_defaults(handler="nedura_cli.fleet:run")
    verbs = gateway.add_subparsers(dest="verb", metavar="VERB")
    run = verbs.add_parser("run", help="run the gateway in this process")
    _run_flags(run, default=argparse.SUPPRESS)
    run.set_defaults(handler="nedura_cli.fleet:run")


def _run_flags(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Flags of `run`; the verb's own copies leave what stood before the verb alone."""

    def flag(name: str, text: str) -> None:
        parser.add_argument(name, action="store_true", default=default or False, help=text)

    flag("--replace", "take over from the gateway that runs on this home")
    flag("--force", "start although the service or a multiplexer serves this home")
    flag("--external-supervisor", "somebody else restarts this process when it exits with 75")
    parser.add_argument(
        "--handler",
        dest="answer",
        metavar="MODULE:FUNCTION",
        default=default,
        help="answer messages with this function instead of the model",
    )
