"""The thread that writes the state file: a disk that refuses, an unchanged state, values that are no JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet.statefile import StateWriter
from tests.kits.fleet import wait_for


def test_a_disk_that_refuses_is_told_once_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    writer = StateWriter(folder / "gateway_state.json", lambda: {"pid": 1})
    writer.start()
    for _ in range(3):
        writer.touch()
        time.sleep(0.15)
    assert len([record for record in caplog.records if "later" in record.message]) == 1
    folder.mkdir()
    writer.touch()
    assert writer.stop()
    assert json.loads((folder / "gateway_state.json").read_text()) == {"pid": 1}


def test_an_unchanged_state_is_stamped_again(tmp_path: Path) -> None:
    moments: list[float] = []

    def stamp() -> dict[str, float]:
        moments.append(time.monotonic())
        return {"at": moments[-1]}

    writer = StateWriter(tmp_path / "s.json", stamp, rewrite_every=0.1)
    writer.start()
    time.sleep(0.6)
    writer.stop()
    assert len(moments) >= 3


@pytest.mark.parametrize("value", [object(), {1, 2}, Path("/x")])
def test_a_value_that_is_no_json_does_not_end_the_writer(tmp_path: Path, value: object) -> None:
    record: dict[str, Any] = {"n": 1, "platforms": {"x": value}}
    writer = StateWriter(tmp_path / "s.json", lambda: record)
    writer.start()
    writer.touch()
    wait_for(lambda: (tmp_path / "s.json").exists(), 5)
    record["n"] = 2
    assert writer.stop()
    assert json.loads((tmp_path / "s.json").read_text())["n"] == 2
