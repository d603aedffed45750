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
        description="Print a completion script.\n\n"
        "  bash  source <(nedura completion bash)\n"
        "  zsh   write it to a file _nedura on your fpath\n"
        "  fish  nedura completion fish | source",
    )
    parser.add_argument("shell", choices=SHELLS, help="your shell")
    parser.set_defaults(handler="nedura_cli.completion:completion")
