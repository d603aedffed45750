"""The commands, as a person and as a machine runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.snapshot.homes import make_database, rows


def nedura(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    import os

    env = {**os.environ, "NEDURA_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_database(tmp_path / "h/state.db", 11)
    (tmp_path / "h").chmod(0o700)
    (tmp_path / "h/config.yaml").write_text("a: 1\n")
    return tmp_path / "h"


def test_create_list_verify_restore(home: Path) -> None:
    assert "no snapshots" in nedura(home, "snapshot", "list").stdout
    made = nedura(home, "snapshot", "create")
    assert made.returncode == 0, made.stderr
    listed = json.loads(nedura(home, "snapshot", "list", "--json").stdout)
    (one,) = listed["snapshots"]
    assert one["complete"]
    assert one["file_count"] == 2
    assert one["id"] in nedura(home, "snapshot", "list").stdout
    assert nedura(home, "snapshot", "verify").returncode == 0
    (home / "state.db").unlink()
    restored = nedura(home, "snapshot", "restore", one["id"], "--json")
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["kind"] == "snapshot_restored"
    assert rows(home / "state.db") == 11


def test_verify_finds_damage_and_exits_1(home: Path) -> None:
    nedura(home, "snapshot", "create")
    (copy,) = (home / "state-snapshots").glob("*/config.yaml")
    copy.write_text("b: 2\n")
    done = nedura(home, "snapshot", "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["damaged"] == {"config.yaml": "its content has changed"}
    restore = nedura(home, "snapshot", "restore", copy.parent.name)
    assert restore.returncode == 1
    assert "damaged" in restore.stderr


@pytest.mark.parametrize(
    ("name", "code"), [("../x", 2), ("nonsense", 2), ("", 2), ("20200101-000000-gone", 1)]
)
@pytest.mark.parametrize("verb", ["restore", "verify"])
def test_a_wrong_id_is_one_clear_line(home: Path, verb: str, name: str, code: int) -> None:
    done = nedura(home, "snapshot", verb, name)
    assert done.returncode == code
    assert done.stderr.startswith("nedura: ")
    assert "See: nedura snapshot list" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_snapshot_without_a_database_is_no_success(home: Path) -> None:
    (home / "projects.db").write_bytes(bytes(5000))
    made = nedura(home, "snapshot", "create")
    assert made.returncode == 1
    assert "⚠ default" in made.stdout
    assert ", without projects.db" in made.stdout


def test_all_profiles_and_the_quick_backup(home: Path) -> None:
    assert nedura(home, "profile", "create", "coder").returncode == 0
    made = nedura(home, "snapshot", "create", "--all", "--json")
    kinds = [json.loads(line)["kind"] for line in made.stdout.splitlines()]
    assert kinds.count("snapshot_taken") == 2
    assert nedura(home, "backup", "--quick").returncode == 0
    assert len(list((home / "state-snapshots").glob("*-manual*"))) == 2
    both = nedura(home, "backup", "--quick", "-o", str(home / "b.zip"))
    assert both.returncode == 2, "a file that was asked for and never comes is no success"
    assert not (home / "b.zip").exists()


def test_backup_and_import(home: Path, tmp_path: Path) -> None:
    done = nedura(home, "backup", "-o", str(tmp_path / "b.zip"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "backup_taken"
    new = tmp_path / "new"
    brought = nedura(new, "import", str(tmp_path / "b.zip"), "--json")
    assert brought.returncode == 0, brought.stderr
    assert set(json.loads(brought.stdout)["files"]) == {"state.db", "config.yaml"}
    assert rows(new / "state.db") == 11
    assert nedura(new, "import", str(tmp_path / "nothing.zip")).returncode == 1
    (tmp_path / "text.zip").write_text("no zip")
    failed = nedura(new, "import", str(tmp_path / "text.zip"))
    assert failed.returncode == 1
    assert failed.stderr == "nedura: text.zip is no zip archive, or a damaged one.\n"


def test_signing_out_names_the_copies_that_it_does_not_reach(home: Path) -> None:
    assert nedura(home, "auth", "logout").stdout == "Nobody was signed in.\n"
    (home / "auth.json").write_text('{"providers": {}}')
    (home / "auth.json").chmod(0o600)
    nedura(home, "snapshot", "create")
    nedura(home, "backup")
    (snapshot,) = (path.name for path in (home / "state-snapshots").iterdir())
    (backup,) = (path.name for path in (home / "backups").iterdir())
    told = nedura(home, "auth", "logout").stdout
    assert f"may still work: snapshot {snapshot}, backup {backup}." in told
    last = json.loads(nedura(home, "auth", "logout", "--json").stdout.splitlines()[-1])
    assert last == {"kind": "sign_in_copies", "snapshots": [snapshot], "backups": [backup]}
    assert "may still work" not in nedura(home, "auth", "logout", "--revoke").stdout
