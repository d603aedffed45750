"""State that is too large to be copied for a check stays out of the copy and is named: it never ends an update (siblings of C193)."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from nedura.product import NEDURA
from nedura.testing.installs import make_site
from nedura.update.state.snapshot_set import FILE_CAP
from nedura.update.validation.probe_state import copy_state
from tests.kits.sealed import Stages


def test_what_is_over_the_cap_or_the_room_is_not_copied(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    database = sqlite3.connect(home / "state.db")
    database.execute("CREATE TABLE t (x)")
    database.execute("INSERT INTO t VALUES (zeroblob(3000000))")
    database.commit()
    database.close()
    (home / "config.yaml").write_text("a: 1\n")
    whole = copy_state(home, tmp_path / "one")
    assert (set(whole.names), whole.left, whole.note) == ({"state.db", "config.yaml"}, (), "")
    capped = copy_state(home, tmp_path / "two", cap=2_000_000)
    assert (capped.names, capped.left) == (("config.yaml",), ("state.db",))
    assert "without state.db" in capped.note
    full = copy_state(home, tmp_path / "three", room=lambda folder: 10_000_000 if folder.is_dir() else 0)
    assert (full.names, full.left) == (("config.yaml",), ("state.db",))
    assert not (tmp_path / "three/state.db").exists()


async def test_an_update_beside_a_huge_database_copies_none_of_it(tmp_path: Path) -> None:
    stages = Stages(make_site(tmp_path, "own", product=NEDURA))
    with (stages.site.home / "state.db").open("wb") as file:
        file.write(b"SQLite format 3\0")
        os.truncate(file.fileno(), 24 * FILE_CAP)
    stages.site.origin.commit({"nedura/new.py": "NEW = 1\n"})
    await stages.update()
    told = {event.name: event.detail for event in stages.told("step")}
    assert told["rehearsal"] == "1 home, without state.db (too large to copy)"
    assert "without state.db (too large to copy)" in told["probe"]
