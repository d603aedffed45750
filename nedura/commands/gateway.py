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
    _add_service_verbs(verbs)


def _run_flags(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Flags of `run`; the verb's own copies leave what stood before the verb alone."""

    def flag(name: str, text: str) -> None:
        parser.add_argument(name, action="store_true", default=default or False, help=text)

    parser.add_argument(
        "-v", "--verbose", action="count", default=argparse.SUPPRESS, help="log more of what happens"
    )
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


def _width(text: str) -> int:
    """How many members at a time; nobody at a time is no restart."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError("needs a whole number of at least 1")
    return int(text)


def _add_service_verbs(verbs: argparse._SubParsersAction[Any]) -> None:
    """The gateway as a service."""

    def verb(name: str, text: str, *, scope: bool = True, everyone: bool = False) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text)
        if scope:
            parser.add_argument("--system", action="store_true", help="the machine's service, not the user's")
        if everyone:
            parser.add_argument(
                "--all", action="store_true", dest="everyone", help="every profile of this install"
            )
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.set_defaults(handler=f"nedura_cli.gateway:{name.replace('-', '_')}")
        return parser

    install = verb("install", "install (or refresh) the service of this home")
    install.add_argument("--run-as-user", metavar="USER", default="", help="whom a --system service runs as")
    install.add_argument("--force", action="store_true", help="write it again although it is as it should be")
    install.add_argument(
        "--start-now", action=argparse.BooleanOptionalAction, default=True, help="start it at once (default)"
    )
    install.add_argument(
        "--start-on-login",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="start it by itself (default)",
    )
    setup = verb("setup", "answer three questions, then install")
    setup.add_argument("--run-as-user", metavar="USER", default="", help="whom a --system service runs as")
    setup.set_defaults(handler="nedura_cli.gateway_setup:setup")
    verb("uninstall", "stop the service of this home and remove it")
    verb("start", "start the service", everyone=True)
    verb("stop", "stop the gateway: its service, or the process", everyone=True)
    restart = verb("restart", "drain, restart and verify", everyone=True)
    restart.add_argument(
        "--width", type=_width, default=8, metavar="N", help="how many are down at once (default 8)"
    )
    status = verb("status", "the service and the gateway of this home")
    status.add_argument("--deep", action="store_true", help="look at the whole fleet")
    status.add_argument("-l", "--full", action="store_true", help="with the newest lines of its log")
    listing = verb("list", "every service of this install and the version matrix", scope=False)
    listing.set_defaults(handler="nedura_cli.gateway:list_all")
    migrate = verb("migrate-legacy", "remove service names of old releases", scope=False)
    migrate.add_argument("--dry-run", action="store_true", help="only name them")
