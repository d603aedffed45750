"""Homes, databases and tokens for the tests of this folder."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["jwt", "make_database", "rows", "snap"]


def make_database(path: Path, rows: int = 50, *, wal: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT)")
        db.executemany("INSERT INTO t(body) VALUES(?)", [(f"row {n}" * 20,) for n in range(rows)])
        db.commit()
    path.chmod(0o600)
    return path


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(db.execute("SELECT count(*) FROM t").fetchone()[0])


def jwt(sub: str, note: str = "") -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': sub, 'n': note})}.x"


def snap(home: Path, now: float = 1_000_000_000.0, label: str = "pre-update") -> str:
    from nedura.update.state.snapshot_take import take_snapshot

    taken = take_snapshot("default", home, label=label, keep=1, now=now)
    assert taken is not None
    return taken.manifest.id
