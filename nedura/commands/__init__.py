"""The command grammar. Renderers parse with it; process identity derives its flag sets from it (never a hand-written list).

Each group of commands is one module here with `add(commands)`. A command names its handler as `module:function`, so that the
logic layer imports no renderer: `set_defaults(handler="nedura_cli.auth:upgrade")`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from nedura.commands.examples import EXAMPLES
from nedura.errors import UsageError
from nedura.top_options import TOP_OPTIONS

__all__ = [
    "GROUPS",
    "Parser",
    "build_parser",
    "each_parser",
    "flags_with_value",
    "own_flags",
    "own_options",
    "subparser",
    "value_flags",
]

GROUPS: Final = (
    "update",
    "auth",
    "gateway",
    "fleet",
    "profile",
    "config",
    "skin",
    "snapshot",
    "system",
    "dev",
    "completion",
)
"""Modules of this package, in the order of `--help`."""

EXIT_CODES: Final = """\
exit codes:
  0    done
  1    failed
  2    refused, or wrong usage
  3    done, and something is owed (--strict)
  130  interrupted"""

_EVERYWHERE: Final = ("--plain", "--debug")
"""Options that are taken in any position."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, told without `shutil`, whose import is a tenth of a `--help`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=max(30, _columns() - 2))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Lines as they are written; one that is too long goes on below its own beginning."""
        return "\n".join(_folded(indent + line, width) for line in text.splitlines())


def _folded(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    import textwrap  # argparse itself loads it for options

    start = line[: len(line) - len(line.lstrip())]
    more = f"{start}  " if start else ""
    return textwrap.fill(line, width, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)


def _columns() -> int:
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal() and int(named):
        return int(named)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that says what to do, exit 2."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Raise it as our own error; the border of the command prints one line.

        Raises:
            UsageError: always.
        """
        words = message.replace("\n", " ").removeprefix("argument COMMAND: ").removeprefix("argument VERB: ")
        for kind, name in (("float", "number"), ("int", "whole number")):
            before, found, value = words.partition(f": invalid {kind} value: ")
            words = f"{before}: {value} is no {name}" if found else words
        end = "" if words.endswith("?") else "."
        raise UsageError(f"{words[:1].upper()}{words[1:]}{end}", advice=f"See: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, _did_you_mean(str(value), [str(item) for item in action.choices])
            )


def _did_you_mean(word: str, choices: Sequence[str]) -> str:
    import difflib  # only an error pays for it

    shown = word.encode("ascii", "replace").decode()[:60]
    near = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    if near:
        return f"there is no {shown!r}; did you mean {near[0]!r}?"
    return f"there is no {shown!r}; there are {', '.join(choices)}"


class _Named:
    """Stands for a command that no word of the line names: `--help` lists it, and nothing is built for it."""

    def __getattr__(self, name: str) -> Callable[..., _Named]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: self


class _Commands:
    """The top level of the grammar, as groups see it: parsers for the commands that the line can mean, names for the others."""

    def __init__(self, real: argparse._SubParsersAction[Parser], words: Sequence[str]) -> None:
        self._real = real
        self._words = frozenset(words)

    def add_parser(self, name: str, **options: Any) -> Any:
        """A parser, or what takes everything that a group tells it and forgets it."""
        if name in self._words:
            return self._real.add_parser(name, **options)
        self._real._name_parser_map[name] = None  # type: ignore[assignment]
        if "help" in options:
            self._real._choices_actions.append(self._real._ChoicesPseudoAction(name, (), options["help"]))
        return _Named()


def build_parser(prog: str = "nedura", words: Sequence[str] | None = None) -> Parser:
    """The grammar, whole or as far as one command line can need it.

    Args:
        prog: the command's name.
        words: the command line. argparse takes a command by its exact name only, so one that is no word of the line cannot
            be meant: it stays a name in the help and in "did you mean".
    """
    parser = Parser(
        prog=prog,
        description="Sign in this install, and update it together with its whole fleet.",
        allow_abbrev=False,
    )
    for flags, how in TOP_OPTIONS:
        parser.add_argument(*flags, **how)  # type: ignore[arg-type]
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    known = commands if words is None else _Commands(commands, words)
    for group in GROUPS:
        importlib.import_module(f"nedura.commands.{group}").add(known)
    for path, each in each_parser(parser):
        _finish(path, each)
    return parser


def _finish(path: tuple[str, ...], parser: argparse.ArgumentParser) -> None:
    """What every subcommand has in common."""
    examples = EXAMPLES.get(" ".join(path), ())
    if examples and not parser.epilog:
        parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in examples)])
        if not path:
            parser.epilog += f"\n\n{EXIT_CODES}"
    if not path:
        return
    parser.allow_abbrev = False
    taken = own_options(parser)
    for flag in _EVERYWHERE:
        if flag not in taken:
            parser.add_argument(flag, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {name: inner for name, inner in action.choices.items() if inner is not None}
    return {}


def each_parser(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every parser of the grammar with the words that lead to it, the top one first."""
    yield path, parser
    for name, inner in _choices(parser).items():
        yield from each_parser(inner, (*path, name))


def subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser | None:
    """The parser of a subcommand; None when there is none of that name."""
    return _choices(parser).get(name)


@functools.cache
def value_flags() -> frozenset[str]:
    """Top-level flags that take the next token as their value, read off the parser itself."""
    return flags_with_value(build_parser())


def flags_with_value(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Options of a parser that consume a value: every option whose `nargs` is not 0."""
    return frozenset(
        flag for action in parser._actions if action.nargs != 0 for flag in action.option_strings
    )


def own_options(parser: argparse.ArgumentParser) -> frozenset[str]:
    """Every option string that a parser defines."""
    return frozenset(flag for action in parser._actions for flag in action.option_strings)


def own_flags(tokens: Sequence[str]) -> frozenset[str] | None:
    """Option strings that the subcommand at the head of `tokens`, and those below it, define themselves; None when it is no command.

    A command that takes the rest of the line as its own arguments owns every option.
    """
    parser: argparse.ArgumentParser | None = subparser(build_parser(words=tokens[:1]), tokens[0])
    if parser is None:
        return None
    found: frozenset[str] = frozenset()
    words = iter(token for token in tokens[1:] if not token.startswith("-"))
    while parser is not None:
        if any(
            action.nargs in (argparse.REMAINDER, argparse.PARSER) and not _choices(parser)
            for action in parser._actions
        ):
            return None
        found |= own_options(parser)
        inner = _choices(parser)
        word = next(words, None) if inner else None
        parser = inner.get(word) if word is not None else None
    return found
