"""`profile.yaml`: what a profile is for and how it is called in surfaces. Optional; its name is never in it."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import ConfigError, RecordMissing, StoreError, UsageError
from nedura.locks import locked
from nedura.records import read_bytes, write_bytes
from nedura.text import clean

__all__ = ["Card", "edit_card", "read_card"]

CARD_FILE: Final = "profile.yaml"
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 500


@attrs.frozen(kw_only=True)
class Card:
    """What `profile.yaml` says.

    Attributes:
        display_name: how surfaces call it; empty for its own name.
        description: one line.
    """

    display_name: str = ""
    description: str = ""


def _load(path: Path) -> tuple[MutableMapping[str, Any], bytes]:
    from nedura._yaml import empty_map, parse_yaml

    try:
        data = read_bytes(path, 64 * 1024)
    except RecordMissing:
        return empty_map(b""), b""
    content = parse_yaml(data, path.name)
    if content is None:
        return empty_map(data), data
    if not isinstance(content, MutableMapping):
        raise ConfigError(f"{path.name} must hold keys and values.")
    return content, data


def read_card(home: Path) -> Card:
    """The card of a profile; an empty one when there is none or it cannot be read."""
    try:
        content, _ = _load(home / CARD_FILE)
    except (ConfigError, StoreError):
        return Card()
    return Card(
        display_name=clean(content.get("display_name"), MAX_NAME),
        description=clean(content.get("description"), MAX_DESCRIPTION),
    )


def edit_card(home: Path, *, display_name: str | None = None, description: str | None = None) -> Card:
    """Change a profile's card; comments and unknown keys stay.

    Args:
        home: the profile's home.
        display_name: new value; None leaves it as it is, empty removes it.
        description: the same.

    Raises:
        UsageError: a value is too long.
        ConfigError: the file cannot be understood.
        StoreError: it cannot be written.
    """
    from nedura._yaml import dump_yaml

    wanted = {"display_name": (display_name, MAX_NAME), "description": (description, MAX_DESCRIPTION)}
    for name, (value, limit) in wanted.items():
        if value is not None and len(value) > limit:
            raise UsageError(f"The {name.replace('_', ' ')} is longer than {limit} characters.")
    with locked(home / f"{CARD_FILE}.lock", what="the profile's card"):
        content, before = _load(home / CARD_FILE)
        for name, (value, limit) in wanted.items():
            if value is None:
                continue
            if clean(value, limit):
                content[name] = clean(value, limit)
            else:
                content.pop(name, None)
        write_bytes(home / CARD_FILE, dump_yaml(content, before))
    return read_card(home)
