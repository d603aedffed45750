"""Migrations of config.yaml: numbered, pure changes of the document, in order, each of which may only add (decision 45).

The file says in `config_version` how far it is. A file of a later version is left alone: its writer knows better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.config import CONFIG_FILE, edit_config, plain, read_config
from nedura.errors import ConfigError

__all__ = ["MIGRATIONS", "VERSION_KEY", "Migration", "migrate", "migrate_config", "pending"]

VERSION_KEY: Final = "config_version"


@attrs.frozen(kw_only=True)
class Migration:
    """One step.

    Attributes:
        version: what the document is at afterwards; versions rise without gaps from 1.
        name: what it does, for receipts.
        change: adds to the document in place; without IO, and the same when it is applied twice.
    """

    version: int
    name: str
    change: Callable[[MutableMapping[str, Any]], None]


def _numbered(content: MutableMapping[str, Any]) -> None:
    """The first numbered form is what every file has been so far."""


MIGRATIONS: Final[tuple[Migration, ...]] = (Migration(version=1, name="numbered", change=_numbered),)
"""In order. A release adds at the end and never changes one that was published."""


def pending(
    content: Mapping[str, Any], migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[Migration, ...]:
    """What a document still needs.

    Raises:
        ConfigError: its version is no whole number of 0 or more.
    """
    version = plain(content.get(VERSION_KEY, 0))
    if type(version) is not int or version < 0:
        raise ConfigError(
            f"{CONFIG_FILE}: {VERSION_KEY} must be a whole number.",
            advice=f"Remove the line {VERSION_KEY} and update again: migrations can be repeated.",
        )
    return tuple(step for step in migrations if step.version > version)


def migrate(
    content: MutableMapping[str, Any], migrations: Sequence[Migration] = MIGRATIONS
) -> tuple[str, ...]:
    """Apply what a document still needs, in place; the names of what was applied.

    Raises:
        ConfigError: its version is unusable, or a migration took something away or changed it.
    """
    steps = pending(content, migrations)
    for step in steps:
        before = plain(content)
        step.change(content)
        lost = _lost(before, plain(content))
        if lost:
            raise ConfigError(f"The migration {step.name} would change {lost}; a migration only adds.")
        content[VERSION_KEY] = step.version
    return tuple(step.name for step in steps)


def _lost(before: Any, after: Any, where: str = "") -> str:
    """Dotted key of the first value that is not what it was; empty when everything still stands."""
    if not isinstance(before, Mapping):
        return "" if before == after else where or "the document"
    if not isinstance(after, Mapping):
        return where or "the document"
    for key, value in before.items():
        inner = f"{where}.{key}" if where else str(key)
        lost = inner if key not in after else _lost(value, after[key], inner)
        if lost:
            return lost
    return ""


def migrate_config(home: Path, migrations: Sequence[Migration] = MIGRATIONS) -> tuple[str, ...]:
    """Bring a home's config.yaml up to date; a file that is missing or empty stays so. Comments and unknown keys stay.

    Returns:
        names of what was applied, nothing for a current file: then it is not written at all.

    Raises:
        ConfigError: the file cannot be used, or a migration fails; it is unchanged then.
        LockTimeout: another process keeps it locked.
    """
    found = read_config(home).data
    if not found or not pending(found, migrations):
        return ()
    applied: list[str] = []

    def change(content: MutableMapping[str, Any]) -> None:
        applied.extend(migrate(content, migrations))

    edit_config(home, change)
    return tuple(applied)
