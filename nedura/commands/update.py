"""Grammar of `update`, `logs` and `debug`."""

from __future__ import annotations

import argparse
from typing import Any

from nedura.commands.folders import existing_folder


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    _update(commands.add_parser("update", help="update this install and its whole fleet"))
    logs = commands.add_parser("logs", help="show logs").add_subparsers(
        dest="logs", metavar="LOG", required=True
    )
    _logs(logs.add_parser("update", help="what the last updates did, from their receipts"))
    debug = commands.add_parser("debug", help="help others to find a fault")
    _bundle(
        debug.add_subparsers(dest="debug_verb", metavar="WHAT", required=True).add_parser(
            "bundle", help="receipts, logs and states in one redacted file; nothing is sent"
        )
    )


def _bundle(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler="nedura_cli.debug:bundle")
    parser.add_argument(
        "--output", metavar="FILE", help="where to write it (default: the root home's debug folder)"
    )
    parser.add_argument("--preview", action="store_true", help="only show what would be in it")
    parser.add_argument("--json", action="store_true", help="one JSON record on stdout")


def _update(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler="nedura_cli.preflight:update")
    _preflight(parser)
    parser.add_argument(
        "--plan", action="store_true", help="print what an update would touch, change nothing"
    )
    parser.add_argument("--json", action="store_true", help="one wire event a line on stdout, nothing else")
    parser.add_argument("-y", "--yes", action="store_true", help="never ask")
    parser.add_argument("--strict", action="store_true", help="exit 3 instead of 0 when work is left owed")
    parser.add_argument(
        "--run-id", metavar="ID", help="id of this run; the same id again reports instead of repeating"
    )
    _snapshots(parser)
    _source(parser)
    parser.add_argument(
        "--no-gateway-restart", action="store_true", help="update the code, leave the fleet's restart owed"
    )
    parser.add_argument(
        "--no-probe", action="store_true", help="do not boot a probe on the new version first"
    )
    parser.add_argument("--retry", action="store_true", help="try a version again that failed before")
    parser.add_argument(
        "--rollback",
        nargs="?",
        const="",
        metavar="RECEIPT",
        help="go back to the version before a receipt's update (default: the last one that moved the code)",
    )
    parser.add_argument(
        "--with-backup",
        action="store_true",
        help="with --rollback: bring back the state, too, from that run's full backup (members must be stopped)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="SECONDS",
        help="end by then, truthfully (default: as the plan says)",
    )
    parser.add_argument("--finish-owed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--gateway", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--post-swap", metavar="FILE", help=argparse.SUPPRESS)


def _preflight(parser: argparse.ArgumentParser) -> None:
    """Forms that finish before anything is updated."""
    parser.add_argument("--check", action="store_true", help="only look whether there is a newer version")
    parser.add_argument("--passive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--install-id", action="store_true", help="print this install's id and path")
    parser.add_argument(
        "--set-channel",
        metavar="NAME",
        help="keep a release channel for this install: stable, canary or main",
    )


def _snapshots(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backup", action="store_true", help="also write a full backup of the home")
    parser.add_argument("--no-backup", action="store_true", help="no snapshot and no backup for this run")


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", metavar="NAME", help="update against this branch")
    parser.add_argument(
        "--channel", metavar="NAME", help="release channel for this run: stable, canary or main"
    )
    parser.add_argument(
        "--allow-downgrade", action="store_true", help="accept a version older than what runs"
    )
    parser.add_argument(
        "--wheels",
        type=existing_folder,
        metavar="DIR",
        help="install packages from this folder, not an index",
    )
    parser.add_argument("--keep-stash", action="store_true", help="checkout layout: leave local edits parked")
    parser.add_argument(
        "--switch-branch", action="store_true", help="checkout layout: leave a parked branch for this run"
    )


def _some(text: str) -> int:
    count = int(text) if text.isascii() and text.isdigit() else 0
    if count < 1:
        raise argparse.ArgumentTypeError("a number above zero is wanted")
    return count


def _logs(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler="nedura_cli.update:logs")
    parser.add_argument(
        "--last", type=_some, default=5, metavar="N", help="how many, newest first (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="the receipts themselves, one a line")
