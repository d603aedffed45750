"""The config keys that nedura reads, with their types. Keys that are not here are kept, and set as plain YAML values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from nedura.errors import UsageError
from nedura.homes import PROFILE_NAME
from nedura.text import clean, redact

__all__ = ["KEYS", "Key", "find_key", "parse_value"]

Kind = Literal["text", "flag", "whole", "address", "people", "profiles", "skin"]
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


@attrs.frozen
class Key:
    """One known key.

    Attributes:
        kind: type of its value.
        about: one line.
        choices: the only values it takes; empty for any.
    """

    kind: Kind
    about: str
    choices: tuple[str, ...] = ()


KEYS: Final[Mapping[str, Key]] = {
    "agent.restart_after_turn_timeout": Key("whole", "seconds a restart waits for running turns"),
    "agent.restart_drain_timeout": Key("whole", "seconds a stopping gateway goes on with its work"),
    "agent.cron_drain_timeout": Key("whole", "seconds a stopping gateway waits for scheduled work"),
    "agent.gateway_timeout": Key("whole", "seconds of stillness after which a turn counts as stuck"),
    "display.skin": Key("skin", "skin of every terminal surface"),
    "display.background": Key("text", "what the terminal's background is", ("auto", "light", "dark")),
    "gateway.multiplex_profiles": Key("flag", "one gateway serves every profile"),
    "gateway.multiplex_profile_allowlist": Key("profiles", "profiles that it serves"),
    "gateway.operators": Key("people", "who may send /login to the gateway, as platform:user"),
    "gateway.respawn_storm.max_starts": Key("whole", "starts in a row after which a gateway stays down"),
    "gateway.respawn_storm.window_s": Key("whole", "seconds in which those starts are counted"),
    "model.default": Key("text", "model that answers"),
    "model.provider": Key("text", "who serves it"),
    "model.base_url": Key("address", "address of the model route"),
    "nous.keepalive_interval_seconds": Key("whole", "seconds between two looks at the sign-in"),
    "nous.guest": Key("flag", "whether the free tier may be used"),
    "update.installs.*.channel": Key("text", "release channel of one install", ("stable", "canary", "main")),
    "updates.check": Key("flag", "look for updates by itself"),
    "updates.pre_update_backup": Key("text", "backup before an update", ("quick", "full", "off")),
    "updates.backup_keep": Key("whole", "how many full backups are kept"),
    "updates.non_interactive_local_changes": Key(
        "text", "what becomes of local edits when nobody can be asked", ("stash", "discard")
    ),
    "updates.parked_branch_strategy": Key(
        "text", "what an update does on another branch", ("switch", "update_in_place")
    ),
    "updates.auto_switch_parked_branch": Key("flag", "switch back to the release branch by itself"),
}
"""Dotted key -> what it takes. A `*` stands for one part."""


def find_key(name: str) -> Key | None:
    """The known key of a dotted name."""
    for pattern, key in KEYS.items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]+"), name):
            return key
    return None


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text.strip()):  # seconds and counts: none of them can be negative
        raise UsageError(f"{name} takes a whole number from 0 up, not {clean(text, 40)!r}.")
    return int(text)


def _flag(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise UsageError(f"{name} takes true or false, not {clean(text, 40)!r}.")
    return word in _TRUE


def _texts(name: str, text: str, form: str, what: str) -> list[str]:
    """Names between commas, each of a form: a name that can never match would be kept for nothing."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for one in names:
        if not re.fullmatch(form, one):
            raise UsageError(f"{name} takes {what} between commas, not {clean(one, 40)!r}.")
    return names


def _address(name: str, text: str) -> str:
    from nedura.urls import origin_of

    if text and origin_of(text) is None:  # empty: the one of the account
        raise UsageError(
            f"{name} takes an https address (or http on this machine), not {redact(clean(text, 80))!r}."
        )
    return text


def _skin(home: Path, name: str) -> str:
    from nedura.skin_files import usable_skin  # it reads the config itself

    usable_skin(home, name)
    return name


def parse_value(home: Path, name: str, text: str) -> Any:
    """The value that a person means by a text.

    Args:
        home: whose skins there are.
        name: dotted key; a known one decides the type.
        text: as typed; for unknown keys plain YAML.

    Raises:
        UsageError: the key takes something else.
        ConfigError: it is no YAML.
    """
    key = find_key(name)
    if key is None:
        from nedura._yaml import parse_yaml
        from nedura.config import plain

        return plain(parse_yaml(text.encode("utf-8", "replace"), "the value"))
    if key.choices and text.strip() not in key.choices:
        raise UsageError(f"{name} takes {', '.join(key.choices)}; not {clean(text, 40)!r}.")
    match key.kind:
        case "flag":
            return _flag(name, text)
        case "whole":
            return _number(name, text)
        case "people":
            return _texts(name, text, r"[^:\s]+:\S+", "people as platform:user")
        case "profiles":
            return _texts(name, text, PROFILE_NAME.pattern, "names of profiles")
        case "address":
            return _address(name, text.strip())
        case "skin":
            return _skin(home, text.strip())
        case _:
            return text.strip()
