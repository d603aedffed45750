"""Grammar of the `fleet` commands: what runs, and what a process is taken for."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    fleet = commands.add_parser("fleet", help="show every runtime of this install")
    fleet.set_defaults(handler="nedura_cli.fleet:status", json=False)
    verbs = fleet.add_subparsers(dest="verb", metavar="VERB")
    status = verbs.add_parser("status", help="the version matrix of the running fleet")
    status.add_argument("--json", action="store_true", help="machine-readable output")
    status.set_defaults(handler="nedura_cli.fleet:status")
