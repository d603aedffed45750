"""Ids that a person may give a run or a sync: they become parts of file names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.clock import SystemClock
from nedura.errors import UsageError
from nedura.product import NEDURA
from nedura.update.generation.pm_repair import pm_sync
from nedura.update.options_check import check_run_id

BAD = ("", "../x", "a/b", "a b", ".hidden", "-x", "x" * 65, "\U0001d400" * 64, "é", "x\n", "x\0")


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_id_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        check_run_id(text)


@pytest.mark.parametrize("text", ["nightly-7", "_", "A.b_c-9", "7" * 64])
def test_plain_ones_are_taken(text: str) -> None:
    assert check_run_id(text) == text


async def test_a_sync_takes_no_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        async for _ in pm_sync(tmp_path, NEDURA, SystemClock(), dict(os.environ), update_id="../../x"):
            pass
    assert list(tmp_path.iterdir()) == []
