"""Grammar of the `skin` commands."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    skin = commands.add_parser("skin", help="colours, faces and words of every terminal surface")
    verbs = skin.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.set_defaults(handler=f"nedura_cli.skin:{name}")
        return parser

    verb("list", "list the built-in skins and your own")
    verb("use", "choose a skin and save the choice").add_argument("name")
    setter = verb("set", "change one colour; a built-in skin is copied first")
    setter.add_argument("key", help="colour key, for example banner_title")
    setter.add_argument("value", help='"#rrggbb"')
    setter.add_argument("--skin", metavar="NAME", help="skin to change (default: the one in use)")
    show = verb("show", "preview every element of a skin")
    show.add_argument("name", nargs="?", help="default: the one in use")
    new = verb("new", "write a commented template with every key")
    new.add_argument("name")
    new.add_argument(
        "--from", dest="base", default="default", metavar="BUILT-IN", help="whose look it starts with"
    )
