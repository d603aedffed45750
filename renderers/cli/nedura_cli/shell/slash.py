"""The slash commands as data: names, help, what completes their arguments. No IO."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Final, Literal

import attrs

__all__ = ["COMMANDS", "Line", "Slash", "find", "parse"]

Source = Literal["", "profiles", "skins", "models", "commands"]


@attrs.frozen
class Slash:
    """One command.

    Attributes:
        name: without its slash.
        about: one line.
        usage: its arguments.
        completes: what its first argument is completed from.
        flags: its options.
    """

    name: str
    about: str
    usage: str = ""
    completes: Source = ""
    flags: tuple[str, ...] = ()


COMMANDS: Final = (
    Slash("help", "list the commands", "[COMMAND]", "commands"),
    Slash("login", "sign in beside the prompt"),
    Slash("logout", "sign out"),
    Slash("status", "account, model, gateways, what is owed"),
    Slash("update", "update this install and its fleet"),
    Slash("model", "show or choose the model", "[ID] [--save]", "models", ("--save",)),
    Slash("skin", "list or choose a skin", "[NAME] [--save]", "skins", ("--save",)),
    Slash("profile", "list or switch profiles", "[NAME]", "profiles"),
    Slash("quit", "leave"),
)
"""In the order of `/help`."""

ALIASES: Final = {"exit": "quit", "q": "quit", "?": "help"}


@attrs.frozen
class Line:
    """What was typed.

    Attributes:
        command: the slash command; None for a message, or for a command that does not exist.
        words: its arguments without options.
        options: its options.
        text: the message, or what was meant as a command.
        near: the command that may have been meant.
    """

    command: Slash | None
    words: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    text: str = ""
    near: str = ""

    @property
    def is_message(self) -> bool:
        """Whether it goes to the model."""
        return self.command is None and not self.text.startswith("/")


def find(name: str) -> Slash | None:
    """A command by name or alias."""
    name = ALIASES.get(name, name)
    return next((command for command in COMMANDS if command.name == name), None)


def parse(text: str) -> Line:
    """Take a typed line apart."""
    text = text.strip()
    if not text.startswith("/"):
        return Line(None, text=text)
    words = _split(text[1:])
    name = words[0].lower() if words else ""
    command = find(name)
    if command is None:
        return Line(None, text=text, near=_near(name))
    rest = words[1:]
    options = frozenset(word for word in rest if word in command.flags)
    return Line(command, tuple(word for word in rest if word not in options), options, text)


def _near(name: str) -> str:
    """The command that a typo or a beginning of two letters may mean; empty when it is like none."""
    names = [one.name for one in COMMANDS]
    begun = [one for one in names if len(name) > 1 and one.startswith(name)]
    near = begun or difflib.get_close_matches(name, [*names, *ALIASES], n=1, cutoff=0.6)
    return ALIASES.get(near[0], near[0]) if near else ""


def _split(text: str) -> Sequence[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return text.split()
