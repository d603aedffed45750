"""Grammar of `completion`."""

from __future__ import annotations

import argparse
from typing import Any, Final

SHELLS: Final = ("bash", "zsh", "fish")


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add it to the top-level parser."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for your shell",
        description="Print a completion script. bash: source <(nedura completion bash). "
        "zsh: nedura completion zsh > a file _nedura on your fpath. fish: nedura completion fish | source.",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(handler="nedura_cli.completion:completion")
