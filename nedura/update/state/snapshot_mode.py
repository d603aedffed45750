"""How much an update saves before it moves: the flags of the run first, then the configuration (facts/update.md 1.2, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nedura.config import Config
from nedura.errors import ConfigError
from nedura.update.options import SnapshotMode, UpdateOptions

__all__ = ["KEEP", "KEY", "asked_mode", "backup_keep", "snapshot_mode"]

KEY: Final = "updates.pre_update_backup"
KEEP: Final = "updates.backup_keep"
KEEP_DEFAULT: Final = 5
_WORDS: Final[Mapping[str, SnapshotMode]] = {
    "quick": "quick", "full": "full", "zip": "full", "true": "full", "off": "off", "none": "off", "disabled": "off",
    "false": "off",
}  # fmt: skip


def asked_mode(*, no_backup: bool, backup: bool) -> SnapshotMode | None:
    """The mode that a run's own flags ask for; None leaves it to the configuration."""
    return "off" if no_backup else "full" if backup else None


def snapshot_mode(options: UpdateOptions, configured: object) -> tuple[SnapshotMode, str]:
    """The mode, and a warning that is empty when the configured value makes sense.

    Args:
        options: `--no-backup` beats `--backup`, which beats the configuration.
        configured: value of `updates.pre_update_backup`; None when unset.
    """
    asked = asked_mode(no_backup=options.no_backup, backup=options.backup)
    if asked is not None:
        return asked, ""
    if configured is None:
        return "quick", ""
    word = str(configured).strip().lower()
    if word in _WORDS:
        return _WORDS[word], ""
    return "quick", f"{KEY} is {word[:40]!r}, which means nothing here; a quick snapshot is taken."


def backup_keep(config: Config) -> tuple[int, str]:
    """How many full backups stay, at least 1, and a warning that is empty when the configured value makes sense."""
    try:
        return max(1, config.whole(KEEP, KEEP_DEFAULT)), ""
    except ConfigError as error:
        return KEEP_DEFAULT, f"{error.message} {KEEP_DEFAULT} are kept."
