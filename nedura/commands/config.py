"""Grammar of the `config` commands."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    config = commands.add_parser("config", help="read and change config.yaml of the profile in use")
    verbs = config.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.set_defaults(handler=f"nedura_cli.config:{name}")
        if name != "edit":
            parser.add_argument("--json", action="store_true", help="machine-readable output")
        return parser

    verb("show", "print every value that is set, secrets masked")
    verb("get", "print one value").add_argument("key", help="dotted, for example model.default")
    setter = verb("set", "change one value; comments and unknown keys stay")
    setter.add_argument("key", help="dotted, for example display.skin")
    setter.add_argument("value", help="the new value; unknown keys take YAML")
    verb("edit", "open the file in your editor; it is saved only when it can be read")
    verb("path", "print where the file is")
