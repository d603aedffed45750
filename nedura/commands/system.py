"""Grammar of the `system` commands: install and pm."""

from __future__ import annotations

import argparse
from typing import Any

from nedura.commands.folders import existing_folder, named_path


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    _install(commands)
    _pm(commands)


def _install(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("install", help="install a git checkout: sealed generations and a launcher")
    parser.add_argument(
        "--source", type=named_path, metavar="DIR", required=True, help="the git checkout to install from"
    )
    parser.add_argument(
        "--home", type=named_path, metavar="DIR", help="root home to install into (default: the one in use)"
    )
    parser.add_argument(
        "--remote", metavar="URL", default="", help="fetch updates from here, not from the checkout's remote"
    )
    parser.add_argument(
        "--branch", metavar="NAME", default="", help="branch to follow (default: the checkout's)"
    )
    parser.add_argument("--python", metavar="PATH", default="", help="interpreter to prefer")
    parser.add_argument(
        "--wheels",
        type=existing_folder,
        metavar="DIR",
        help="folder of wheels to install packages from, without any index",
    )
    parser.add_argument(
        "--environment",
        choices=("managed", "none"),
        help="managed: build an environment from the lock file; none: use the packages of --python",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    parser.set_defaults(handler="nedura_cli.install:install")


def _pm(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("pm", help="generations and environments of this install")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    status = verbs.add_parser("status", help="what is kept, what is in use")
    status.add_argument("--verify", action="store_true", help="also compare every byte with the manifests")
    sync = verbs.add_parser("sync", help="build what is current again when it is not whole any more")
    sync.add_argument("--update-id", metavar="ID", default="", help="file the receipt under this update")
    sync.add_argument(
        "--wheels", type=existing_folder, metavar="DIR", help="folder of wheels to install packages from"
    )
    gc = verbs.add_parser("gc", help="remove generations and environments that nobody uses")
    convert = verbs.add_parser("convert", help="make a checkout install a sealed one")
    convert.add_argument("--environment", choices=("managed", "none"), help="who provides the packages")
    for verb, name in ((status, "status"), (sync, "sync"), (gc, "gc"), (convert, "convert")):
        verb.add_argument("--json", action="store_true", help="print events as JSON lines")
        verb.set_defaults(handler=f"nedura_cli.pm:{name}")
