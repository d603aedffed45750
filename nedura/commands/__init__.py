"""The command grammar. Renderers parse with it; process identity derives its flag sets from it (never a hand-written list).

Each group of commands is one module here with `add(commands)`. A command names its handler as `module:function`, so that the
logic layer imports no renderer: `set_defaults(handler="nedura_cli.auth:upgrade")`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Final


__all__ = ["GROUPS", "build_parser", "subparser", "value_flags"]

GROUPS: Final = ("update", "auth", "gateway", "fleet", "profile", "config", "skin", "system")
"""Modules of this package, in the order of `--help`."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that says what to do, exit 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Print one line and exit 2."""
        self.exit(2, f"{self.prog}: {message}. See: {self.prog} --help\n")


def build_parser(prog: str = "nedura") -> Parser:
    """The whole grammar.

    Args:
        prog: the command's name.
    """
    parser = Parser(
        prog=prog,
        description="Sign in this install, and update it together with its whole fleet.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-V", "--version", action="store_true", help="print the version (-v: install, generation, launcher)"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more")
    parser.add_argument("-p", "--profile", metavar="NAME", help="profile to use (in any position)")
    parser.add_argument("-m", "--model", metavar="ID", help="model for this session")
    parser.add_argument("--provider", metavar="NAME", help="provider for this session")
    parser.add_argument("--reasoning", metavar="LEVEL", help="reasoning effort for this session")
    parser.add_argument("-z", "--oneshot", metavar="TEXT", help="send one message, print the answer, exit")
    parser.add_argument(
        "-c", "--continue", dest="resume", nargs="?", const="", metavar="SESSION", help="continue a session"
    )
    parser.add_argument(
        "--plain", action="store_true", help="append-only output for screen readers (or ACCESSIBLE=1)"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for group in GROUPS:
        importlib.import_module(f"nedura.commands.{group}").add(commands)
    return parser


def subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser | None:
    """The parser of a subcommand; None when there is none of that name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices.get(name)
            return found if isinstance(found, argparse.ArgumentParser) else None
    return None


@functools.cache
def value_flags() -> frozenset[str]:
    """Top-level flags that take the next token as their value, read off the parser itself."""
    return flags_with_value(build_parser())


def flags_with_value(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Options of a parser that consume a value: every option whose `nargs` is not 0."""
    return frozenset(
        flag for action in parser._actions if action.nargs != 0 for flag in action.option_strings
    )
