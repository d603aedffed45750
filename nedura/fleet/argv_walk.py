"""Stepping over options the way argparse does, with what each flag swallows read off the real parser. Pure."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from nedura.commands import Parser, gateway, subparser
from nedura.profile_flag import names_profile
from nedura.top_options import TOP_OPTIONS

__all__ = ["Grammar", "Walk", "grammars", "is_flag", "profile_after", "walk_options"]

_PROFILE_FLAGS: Final = ("-p", "--profile")

Arity = Literal["none", "one", "optional", "rest"]


@attrs.frozen
class Grammar:
    """Options of one parser: flag -> what it swallows."""

    options: Mapping[str, Arity]

    def arity(self, flag: str) -> Arity:
        """What a flag swallows; an unknown one nothing."""
        return self.options.get(flag, "none")


def _arity(action: argparse.Action) -> Arity:
    match action.nargs:
        case 0:
            return "none"
        case "?":
            return "optional"
        case None | 1:
            return "one"
        case _:
            return "rest"


def _grammar_of(parser: argparse.ArgumentParser | None) -> Grammar:
    actions = parser._actions if parser is not None else []
    options = {flag: _arity(action) for action in actions for flag in action.option_strings}
    return Grammar({**options, "-p": "one", "--profile": "one"})


@functools.cache
def grammars() -> tuple[Grammar, Grammar]:
    """Grammars of the whole command and of its `gateway` subcommand, with the profile flag that counts in any position."""
    parser = Parser(add_help=True, allow_abbrev=False)
    for flags, how in TOP_OPTIONS:
        parser.add_argument(*flags, **how)  # type: ignore[arg-type]
    gateway.add(
        parser.add_subparsers(parser_class=Parser)
    )  # the other groups say nothing here and cost 50 ms
    return _grammar_of(parser), _grammar_of(subparser(parser, "gateway"))


@attrs.define
class Walk:
    """Options read so far, and where the first word that is neither a flag nor its value stands."""

    index: int
    flags: list[str] = attrs.field(factory=list)
    profile: str | None = None


def _take_value(arity: Arity, tokens: Sequence[str], index: int) -> int:
    """Index after the values that a flag at `index` - 1 swallows."""
    if arity == "one":
        return index + 1
    if arity == "optional":
        return index + 1 if index < len(tokens) and not is_flag(tokens[index]) else index
    if arity == "rest":
        while index < len(tokens) and not is_flag(tokens[index]):
            index += 1
    return index


def is_flag(token: str) -> bool:
    """Whether a token is an option; a lone dash is a word."""
    return len(token) > 1 and token.startswith("-")


def walk_options(tokens: Sequence[str], start: int, grammar: Grammar) -> Walk:
    """Step over options the way argparse does, up to the first positional word."""
    walk = Walk(start)
    while walk.index < len(tokens):
        token = tokens[walk.index]
        if token == "--":
            walk.index += 1
            break
        if not is_flag(token):
            break
        walk.index += 1
        _step(token, tokens, walk, grammar)
    return walk


def _step(token: str, tokens: Sequence[str], walk: Walk, grammar: Grammar) -> None:
    """Read one option token, its attached or following value included."""
    if token.startswith("--") or token in grammar.options:
        flag, mark, value = token.partition("=")
        walk.flags.append(flag)
        if mark:
            _note(walk, flag, value)
        else:
            end = _take_value(grammar.arity(flag), tokens, walk.index)
            _note(walk, flag, tokens[walk.index] if end > walk.index and end <= len(tokens) else None)
            walk.index = end
        return
    for position, letter in enumerate(token[1:], 1):
        flag = f"-{letter}"
        walk.flags.append(flag)
        if flag not in grammar.options:
            return  # an option of another version: it stands for itself
        if grammar.arity(flag) == "none":
            continue
        attached = token[position + 1 :].removeprefix("=")
        if attached:
            _note(walk, flag, attached)
        else:
            end = _take_value(grammar.arity(flag), tokens, walk.index)
            _note(walk, flag, tokens[walk.index] if end > walk.index and end <= len(tokens) else None)
            walk.index = end
        return


def _note(walk: Walk, flag: str, value: str | None) -> None:
    if flag in _PROFILE_FLAGS and value is not None and walk.profile is None and names_profile(value):
        walk.profile = value.strip().casefold() or None


def profile_after(tokens: Sequence[str], start: int, grammar: Grammar) -> str | None:
    """The profile flag behind the subcommand; `--` and `--args` end what belongs to us (facts/runtime.md 6.4)."""
    index = start
    while index < len(tokens):
        token = tokens[index]
        if token in ("--", "--args"):
            return None
        index += 1
        if not is_flag(token):
            continue
        walk = Walk(index)
        _step(token, tokens, walk, grammar)
        if walk.profile is not None:
            return walk.profile
        index = walk.index
    return None
