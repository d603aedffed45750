"""Grammar of the `system` commands: install and pm."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    _install(commands)


def _install(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("install", help="install a git checkout: sealed generations and a launcher")
    parser.add_argument("--source", metavar="DIR", required=True, help="the git checkout to install from")
    parser.add_argument("--home", metavar="DIR", help="root home to install into (default: the one in use)")
    parser.add_argument(
        "--remote", metavar="URL", default="", help="fetch updates from here, not from the checkout's remote"
    )
    parser.add_argument(
        "--branch", metavar="NAME", default="", help="branch to follow (default: the checkout's)"
    )
    parser.add_argument("--python", metavar="PATH", default="", help="interpreter to prefer")
    parser.add_argument(
        "--wheels", metavar="DIR", help="folder of wheels to install packages from, without any index"
    )
    parser.add_argument(
        "--environment",
        choices=("managed", "none"),
        help="managed: build an environment from the lock file; none: use the packages of --python",
    )
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")
    parser.set_defaults(handler="nedura_cli.install:install")
