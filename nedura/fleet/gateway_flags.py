"""What a person typed behind `gateway run` that its successor should be started with, too. Pure.

The argument list is parsed, never passed on (threats.md 4): what comes out is built of our own flags, with a value only where it has
the form of that flag. `--replace` was about one moment, and `--external-supervisor` is somebody else's restart, so neither is kept.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final

from nedura.commands import Parser, gateway
from nedura.errors import UsageError
from nedura.fleet.entrypoint import find_entry
from nedura.fleet.identity import classify
from nedura.product import NEDURA, Product
from nedura.top_options import TOP_OPTIONS

__all__ = ["kept_flags"]

_HANDLER: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*:[A-Za-z_]\w*", re.ASCII)
_MAX_VERBOSE: Final = 3
_PROFILE: Final = ("-p", "--profile")


def kept_flags(argv: Sequence[str], product: Product = NEDURA, platform: str = "linux") -> tuple[str, ...]:
    """Flags of `gateway run` for the successor of a gateway; none when the list is no gateway's or does not parse.

    Args:
        argv: the full argument list of a live gateway of ours.
        product: names to go by.
        platform: `sys.platform` of its system.
    """
    entry = find_entry(argv, product, platform) if argv else None
    if entry is None or classify(argv, product=product, platform=platform).gateway_run is not True:
        return ()
    words = [*(("gateway", "run") if entry.gateway else ()), *argv[entry.start :]]
    try:
        parsed, _ = _parser().parse_known_args(words)
    except (UsageError, SystemExit):
        return ()
    flags: list[str] = []
    if verbose := min(int(parsed.verbose or 0), _MAX_VERBOSE):
        flags.append("-" + "v" * verbose)
    if parsed.force:
        flags.append("--force")
    if parsed.answer is not None and _HANDLER.fullmatch(parsed.answer):
        flags += ["--handler", parsed.answer]
    return tuple(flags)


def _parser() -> Parser:
    """The grammar down to `gateway run`, where the profile flag counts in any position."""
    parser = Parser(add_help=False, allow_abbrev=False)
    for flags, how in TOP_OPTIONS:
        parser.add_argument(*flags, **how)  # type: ignore[arg-type]
    commands = parser.add_subparsers(parser_class=Parser)
    gateway.add(commands)
    _take_profile(commands)
    return parser


def _take_profile(commands: argparse._SubParsersAction[Any]) -> None:
    for parser in commands.choices.values():
        parser.allow_abbrev = False
        parser.add_argument(*_PROFILE, default=argparse.SUPPRESS)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                _take_profile(action)
