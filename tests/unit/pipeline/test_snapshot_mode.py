"""Flags beat the configuration; what means nothing is said and costs nothing."""

from __future__ import annotations

import pytest

from nedura.update.options import UpdateOptions
from nedura.update.state.snapshot_mode import snapshot_mode


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
