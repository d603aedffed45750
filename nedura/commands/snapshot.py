"""Grammar of the `snapshot`, `backup` and `import` commands."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    snapshot = commands.add_parser(
        "snapshot", help="quick snapshots of a profile's state: file-loss recovery"
    )
    verbs = snapshot.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.set_defaults(handler=f"nedura_cli.snapshot:{name}")
        return parser

    verb("list", "list the snapshots of this profile")
    create = verb("create", "take a snapshot of this profile now; exit 1 when a file of the set is not in it")
    create.add_argument("--all", action="store_true", help="of every profile")
    restore = verb("restore", "put the files of a snapshot back; newer sign-ins stay")
    restore.add_argument("id", help="snapshot id, see: nedura snapshot list")
    restore.add_argument(
        "--no-safety",
        action="store_true",
        help="take no snapshot first of what is there now: for a disk that has no room for it",
    )
    verify = verb("verify", "check every byte of a snapshot")
    verify.add_argument("id", nargs="?", help="snapshot id; default: all of this profile")

    backup = commands.add_parser(
        "backup",
        help="zip the root home with all profiles (contains credentials)",
        description="Make a full backup.",
    )
    backup.add_argument("--quick", action="store_true", help="only a quick snapshot of this profile")
    backup.add_argument("-o", "--output", metavar="FILE", help="write the zip here")
    backup.add_argument("--json", action="store_true", help="machine-readable output")
    backup.set_defaults(handler="nedura_cli.snapshot:backup")

    bring = commands.add_parser(
        "import",
        help="bring a backup into the root home",
        description="Put the files of a backup into the root home.",
    )
    bring.add_argument("zip", help="the backup")
    bring.add_argument(
        "--trust",
        action="store_true",
        help="also take credentials, .env, plugins, hooks, operators and model address from it",
    )
    bring.add_argument(
        "--large", action="store_true", help="accept more than 20,000 files or 2 GiB: it is your own"
    )
    bring.add_argument("--json", action="store_true", help="machine-readable output")
    bring.set_defaults(handler="nedura_cli.snapshot:bring")
