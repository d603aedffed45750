"""Which profile a command line means, decided before anything that knows a home is imported (facts/runtime.md 6.4).

Standard library only. The order: the flag, a NEDURA_HOME that is a profile already, the sticky profile, the root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nedura.errors import NeduraError, ProfileError
from nedura.homes import (
    DEFAULT_PROFILE,
    HOME_VARIABLE,
    PROFILE_NAME,
    home_for_profile,
    process_home,
    root_home,
)
from nedura.top_options import TOP_OPTIONS, VALUE_FLAGS

__all__ = [
    "STICKY_FILE",
    "Selection",
    "SubcommandFlags",
    "find_flag",
    "names_profile",
    "normal_name",
    "select",
    "sticky_profile",
]

STICKY_FILE = "active_profile"
_SWITCHES = frozenset(flag for flags, how in TOP_OPTIONS if how.get("action") for flag in flags)
_OPTIONAL = frozenset(flag for flags, how in TOP_OPTIONS if how.get("nargs") == "?" for flag in flags)
_SUPERVISED = ("NEDURA_SUPERVISED_CHILD", "NEDURA_EXTERNAL_SUPERVISOR")

SubcommandFlags = Callable[[Sequence[str]], frozenset[str] | None]
"""Given the tokens from the subcommand on: the option strings that it defines itself; None when it is none of ours."""


class _Missing(NeduraError):
    """Raised when a profile that was asked for is not there. Exit 1, unlike an impossible name."""

    code = "profile_missing"


class Selection:
    """What was decided.

    Attributes:
        home: the home to use.
        profile: its name; empty when the environment named a home by itself.
        explicit: the flag named it.
        argv: the command line without the flag.
    """

    __slots__ = ("argv", "explicit", "home", "profile")

    def __init__(self, home: Path, profile: str, explicit: bool, argv: list[str]) -> None:
        self.home = home
        self.profile = profile
        self.explicit = explicit
        self.argv = argv


def normal_name(text: str) -> str:
    """A profile name as people type it: stripped, lower case."""
    return text.strip().casefold()


def _unknown_subcommand(tokens: Sequence[str]) -> frozenset[str] | None:
    del tokens
    return None


def find_flag(
    argv: Sequence[str], subcommand_flags: SubcommandFlags = _unknown_subcommand
) -> tuple[str, int, int] | None:
    """The first profile flag that is ours: its value and the span of tokens it takes; None without one.

    Before the subcommand every one counts; after it only where the subcommand's own grammar leaves it free; after `--` none.

    Args:
        argv: the command line without the program.
        subcommand_flags: asked only when there is a candidate behind the subcommand.
    """
    index, own, inside = 0, frozenset[str](), False
    while index < len(argv):
        token = argv[index]
        if token == "--":
            return None
        if not token.startswith("-") or token == "-":
            if not inside:
                inside = True
                if not _has_candidate(argv[index + 1 :]):
                    return None
                found = subcommand_flags(argv[index:])
                if found is None:
                    return None
                own = found
        elif (flag := _profile_in(token)) is not None and flag[0] not in own:
            if flag[2] is not None:
                return flag[2], index, index + 1
            if index + 1 < len(argv):
                return argv[index + 1], index, index + 2
            return None
        elif not inside and _takes_next(token, argv[index + 1 : index + 2]):
            index += 1
        index += 1
    return None


def _has_candidate(tokens: Sequence[str]) -> bool:
    return any(token.startswith("-") and _profile_in(token) is not None for token in tokens)


def _profile_in(token: str) -> tuple[str, str, str | None] | None:
    """The profile flag in an option token, by the parser's rules for clusters: `-pops`, `-vp ops`, `-p=ops`.

    Returns:
        The flag's spelling, the switches that stand before it in the same token, and its attached value; None without one.
    """
    if token.startswith("--"):
        name, equals, value = token.partition("=")
        return ("--profile", "", value if equals else None) if name == "--profile" else None
    for position, letter in enumerate(token[1:], 1):
        if letter == "p":
            attached = token[position + 1 :]
            return "-p", token[1:position], attached.removeprefix("=") if attached else None
        if f"-{letter}" not in _SWITCHES:
            return None
    return None


def _takes_next(token: str, following: Sequence[str]) -> bool:
    """Whether an option before the subcommand swallows the token behind it."""
    flag = token
    if not token.startswith("--"):
        position = next((at for at, letter in enumerate(token) if at and f"-{letter}" not in _SWITCHES), 0)
        if position != len(token) - 1:
            return False  # only switches, or the value is attached
        flag = f"-{token[position]}"
    if flag in _OPTIONAL:
        return bool(following) and not following[0].startswith("-")
    return flag in VALUE_FLAGS


def _kept_of(token: str) -> list[str]:
    """What stays of the token that held the profile flag: the switches before it."""
    found = _profile_in(token)
    return [f"-{found[1]}"] if found is not None and found[1] else []


def sticky_profile(root: Path) -> str:
    """The profile that stays selected, from `<root>/active_profile`; empty for none, the default, or a file that cannot be read."""
    try:
        with open(root / STICKY_FILE, "rb") as file:
            name = normal_name(file.read(256).split(b"\n", 1)[0].decode("utf-8", "replace"))
    except OSError:
        return ""
    return name if PROFILE_NAME.fullmatch(name) and name != DEFAULT_PROFILE else ""


def _follows_sticky(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """A supervised child runs for the home its supervisor named, never for what a person picked meanwhile."""
    if any(environ.get(name) for name in _SUPERVISED):
        return False
    words = [token for token in argv if not token.startswith("-")]
    return not (environ.get("INVOCATION_ID") and words[:1] == ["gateway"])


def names_profile(text: str) -> bool:
    """Whether a flag's value can be meant as a profile: `-p no:xdist` and the like are some other program's and select nothing."""
    return not text.startswith("-") and ":" not in text


def select(
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    subcommand_flags: SubcommandFlags = _unknown_subcommand,
) -> Selection:
    """Decide the home of a command line. Reads the sticky file and looks whether the profile is there; changes nothing.

    Args:
        argv: the command line without the program.
        environ: default the process's own.
        subcommand_flags: see `find_flag`.

    Raises:
        ProfileError: the flag's value is no profile name (exit 2).
        NeduraError: there is no such profile (exit 1).
    """
    environ = os.environ if environ is None else environ
    home = process_home(environ)
    root = root_home(home, environ)
    found = find_flag(argv, subcommand_flags)
    if found is not None and names_profile(found[0]):
        text, start, end = found
        return Selection(
            _existing(root, _checked(text)),
            normal_name(text),
            True,
            [*argv[:start], *_kept_of(argv[start]), *argv[end:]],
        )
    if environ.get(HOME_VARIABLE, "").strip() and home.parent.name == "profiles":
        return Selection(home, "", False, list(argv))
    name = sticky_profile(root) if _follows_sticky(argv, environ) else ""
    if not name:
        return Selection(home, "", False, list(argv))
    return Selection(_existing(root, name, sticky=True), name, False, list(argv))


def _checked(text: str) -> str:
    name = normal_name(text)
    if not PROFILE_NAME.fullmatch(name):
        shown = re.sub(r"[^\x20-\x7e]", "?", text)[:70]
        raise ProfileError(
            f"{shown!r} is no profile name.",
            advice="Use 1 to 64 of a-z, 0-9, _ and -, a letter or digit first.",
        )
    return name


def _existing(root: Path, name: str, *, sticky: bool = False) -> Path:
    home = home_for_profile(root, name)
    if name == DEFAULT_PROFILE or home.is_dir():
        return home
    advice = f"Make it: nedura profile create {name}"
    if sticky:
        advice = "It is the sticky one. Choose another: nedura -p default profile use default"
    raise _Missing(f"There is no profile {name!r}.", advice=advice)
