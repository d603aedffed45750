"""Grammar of the `fleet` commands: what runs, and what a process is taken for."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    fleet = commands.add_parser("fleet", help="show every runtime of this install")
    verbs = fleet.add_subparsers(dest="verb", metavar="VERB")
    status = verbs.add_parser(
        "status",
        help="the version matrix of the running fleet",
        epilog="examples:\n  nedura fleet status\n  nedura fleet status --json",
    )
    status.add_argument("--json", action="store_true", help="machine-readable output")
    status.set_defaults(handler="nedura_cli.fleet:status")
    explain = verbs.add_parser(
        "explain",
        help="what a process or a command line is taken for, and why",
        epilog="examples:\n  nedura fleet explain 1\n  nedura fleet explain --json -- nedura gateway run",
    )
    explain.add_argument("what", nargs="+", metavar="PID|ARGV", help="a pid, or -- and a command line")
    explain.add_argument("--json", action="store_true", help="machine-readable output")
    explain.set_defaults(handler="nedura_cli.fleet:explain")
