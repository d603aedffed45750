"""Grammar of the `dev` commands, for people who work on nedura or on a product built on it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    group = commands.add_parser("dev", help="tools for development").add_subparsers(
        dest="dev_command", metavar="COMMAND", required=True
    )
    portal = group.add_parser("portal", help="run a development portal on this machine")
    portal.add_argument("--port", type=int, default=0, metavar="N", help="port (default: a free one)")
    portal.add_argument("--log-file", type=Path, metavar="F", help="also write the request log there")
    portal.add_argument(
        "--approve", default="", metavar="EMAIL", help="approve every code at once as this account"
    )
    portal.add_argument(
        "--interval", type=int, default=5, metavar="SECONDS", help="polling interval it names"
    )
    portal.add_argument("--json", action="store_true", help="print one JSON record")
    portal.set_defaults(handler="nedura_cli.dev:portal")
