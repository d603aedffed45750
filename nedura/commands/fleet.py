"""Grammar of the `fleet` commands: what runs, and what a process is taken for."""

from __future__ import annotations

import argparse
from typing import Any

from nedura.commands import Parser


class _Literal(Parser):
    """A parser that keeps what stands behind the first `--` as it is, in `argv`; argparse itself forgets that the mark was there."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args or ())
        mark = words.index("--") if self.get_default("literal") and "--" in words else None
        parsed, rest = super().parse_known_args(words[:mark], namespace)
        if self.get_default("literal"):
            parsed.argv = None if mark is None else words[mark + 1 :]
            if mark is None and not parsed.what:
                self.error("the following arguments are required: PID|ARGV")
            if mark is not None and parsed.what:
                self.error("a pid, or -- and a command line, not both")
        return parsed, rest


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    fleet = commands.add_parser("fleet", help="show every runtime of this install")
    verbs = fleet.add_subparsers(dest="verb", metavar="VERB", parser_class=_Literal)
    status = verbs.add_parser(
        "status",
        help="the version matrix of the running fleet",
        epilog="examples:\n  nedura fleet status\n  nedura fleet status --json",
    )
    status.add_argument("--json", action="store_true", help="machine-readable output")
    status.set_defaults(handler="nedura_cli.fleet:status")
    explain = verbs.add_parser(
        "explain",
        help="what a process or a command line is taken for, and why",
        epilog="examples:\n  nedura fleet explain 1\n  nedura fleet explain --json -- nedura gateway run",
    )
    explain.add_argument("what", nargs="*", metavar="PID|ARGV", help="a pid, or -- and a command line")
    explain.add_argument("--json", action="store_true", help="machine-readable output")
    explain.set_defaults(handler="nedura_cli.fleet:explain", literal=True)
