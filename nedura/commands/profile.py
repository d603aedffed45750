"""Grammar of the `profile` commands."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    profile = commands.add_parser(
        "profile", help="isolated homes: one config, account, memory and gateway each"
    )
    verbs = profile.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.set_defaults(handler=f"nedura_cli.profile:{name}")
        return parser

    verb("list", "list every profile, whichever is active")
    create = verb("create", "make a new profile")
    create.add_argument("name", help="1 to 64 of a-z, 0-9, _ and -")
