"""Flags beat the configuration; what means nothing is said and costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.config import read_config
from nedura.update.options import UpdateOptions
from nedura.update.state.snapshot_mode import backup_keep, snapshot_mode


@pytest.mark.parametrize(
    ("configured", "mode"),
    [(None, "quick"), ("quick", "quick"), ("full", "full"), ("zip", "full"), (True, "full"), (False, "off"), ("off", "off"),
     ("none", "off"), ("disabled", "off"), (" Full ", "full")],
)  # fmt: skip
def test_configuration(configured: object, mode: str) -> None:
    assert snapshot_mode(UpdateOptions(), configured) == (mode, "")


def test_flags_win() -> None:
    assert snapshot_mode(UpdateOptions(backup=True), "off")[0] == "full"
    assert snapshot_mode(UpdateOptions(backup=True, no_backup=True), "full")[0] == "off"


def test_an_unknown_word_warns_and_means_quick() -> None:
    mode, warning = snapshot_mode(UpdateOptions(), "sometimes")
    assert mode == "quick"
    assert "sometimes" in warning


@pytest.mark.parametrize(
    ("text", "keep"),
    [("3", 3), ("0", 1), ("-2", 1), ("abc", 5), ("true", 5), ("[1]", 5), (".inf", 5), ("", 5)],
)
def test_how_many_full_backups_stay(tmp_path: Path, text: str, keep: int) -> None:
    """A value that is no number ended the whole update with Python's own words."""
    (tmp_path / "config.yaml").write_text(f"updates:\n  backup_keep: {text}\n")
    found, warning = backup_keep(read_config(tmp_path))
    assert found == keep
    assert bool(warning) == (text in ("abc", "true", "[1]", ".inf"))
    assert not warning or "updates.backup_keep must be a whole number" in warning
