"""Full backups of real homes, and bringing them back."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
import zipfile
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from nedura.config import read_config
from nedura.errors import RefusedError, StoreError
from nedura.update.events_snapshot import BackupFailed, BackupTaken
from nedura.update.state.archive import UnsafeArchive
from nedura.update.state.backup import ZIP_NOTE, take_backup, write_backup
from nedura.update.state.home_import import LARGE, drop_reason, import_backup
from tests.integration.snapshot.homes import jwt, make_database, rows


def full_home(root: Path) -> Path:
    for home in (root, root / "profiles/coder"):
        make_database(home / "state.db", 30)
        (home / "config.yaml").write_text("model:\n  default: x\n")
        (home / ".env").write_text("KEY=needle-env\n")
        (home / "auth.json").write_text(
            json.dumps({"providers": {"nous": {"access_token": jwt("u"), "obtained_at": "2026"}}})
        )
        (home / "skills").mkdir()
        (home / "skills/one.md").write_text("skill")
        (home / "skills/run.sh").write_text("#!/bin/sh\n")
        (home / "skills/run.sh").chmod(0o755)
        for folder in (
            "node_modules",
            ".venv",
            "backups",
            "state-snapshots",
            "models",
            "cache/images",
            "cache/http",
            ".git",
        ):
            (home / folder).mkdir(parents=True, exist_ok=True)
            (home / folder / "inside").write_text("inside")
        (home / "gateway.pid").write_text("1")
        (home / "state.db.pre-update-emergency-1").write_text("x")
    (root / "installs/0123").mkdir(parents=True)
    (root / "installs/0123/big").write_text("big")
    (root / "bin").mkdir()
    (root / "bin/nedura").write_text("#!/bin/sh\n")
    return root


async def backup(root: Path, **options: object) -> BackupTaken | BackupFailed:
    async with aclosing(take_backup(root, **options)) as events:  # type: ignore[arg-type]
        found = [event async for event in events]
    last = found[-1]
    assert isinstance(last, (BackupTaken, BackupFailed))
    return last


def members(path: str | Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


async def test_it_holds_everything_of_the_user_and_nothing_that_can_be_made_again(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    taken = await backup(root)
    assert isinstance(taken, BackupTaken)
    each = {
        "state.db",
        "config.yaml",
        ".env",
        "auth.json",
        "skills/one.md",
        "skills/run.sh",
        "cache/images/inside",
    }
    assert members(taken.path) == {*each, *(f"profiles/coder/{name}" for name in each), ZIP_NOTE}
    assert stat.S_IMODE(os.stat(taken.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(root / "backups").st_mode) == 0o700
    assert "contains credentials" in taken.copy_terminal
    assert not [name for name in os.listdir(root / "backups") if name.startswith(".")]


async def test_rows_that_are_only_in_the_log_are_in_it(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    with closing(sqlite3.connect(root / "state.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO t(body) VALUES(?)", [("late",)] * 100)
        writer.execute("COMMIT")
        taken = await backup(root)
    assert isinstance(taken, BackupTaken)
    with zipfile.ZipFile(taken.path) as archive:
        archive.extract("state.db", tmp_path)
    assert rows(tmp_path / "state.db") == 130


async def test_the_checkout_and_earlier_backups_are_no_input(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    (root / "code").mkdir()
    (root / "code/x.py").write_text("x")
    first = await backup(root, checkout=root / "code")
    second = await backup(root, checkout=root / "code")
    assert isinstance(first, BackupTaken)
    assert isinstance(second, BackupTaken)
    assert members(first.path) == members(second.path)
    assert not any(name.startswith("code") for name in members(first.path))


async def test_old_ones_of_the_same_label_go(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    (root / "backups/mine.zip").write_text("mine")
    for number in range(4):
        write_backup(root, now=1_000_000_000 + number, keep=2)
    names = sorted(name for name in os.listdir(root / "backups") if name.endswith(".zip"))
    assert names == ["mine.zip", "pre-update-20010909-014642.zip", "pre-update-20010909-014643.zip"]
    write_backup(root, now=1_000_000_009, keep=0)
    assert len([name for name in os.listdir(root / "backups") if name.startswith("pre-update")]) == 1, (
        "never less than one"
    )


async def test_our_own_database_that_fails_ends_it_and_leaves_the_older_ones(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    good = await backup(root, keep=1)
    (root / "profiles/coder/state.db").write_bytes(bytes(5000))
    bad = await backup(root, keep=1)
    assert isinstance(good, BackupTaken)
    assert isinstance(bad, BackupFailed)
    assert "state.db" in bad.reason
    assert Path(good.path).exists()
    assert not [name for name in os.listdir(root / "backups") if name.startswith(".")]


async def test_a_target_of_ones_own_is_never_overwritten(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    taken = await backup(root, target=tmp_path / "mine.zip")
    assert isinstance(taken, BackupTaken)
    assert taken.path == str(tmp_path / "mine.zip")
    assert isinstance(await backup(root, target=tmp_path / "mine.zip"), BackupFailed)


async def test_closing_it_early_leaves_nothing(tmp_path: Path) -> None:
    root = full_home(tmp_path / "h")
    (root / "big.bin").write_bytes(os.urandom(20_000_000))
    async with aclosing(take_backup(root)) as events:
        await anext(events)
    assert os.listdir(root / "backups") == ["inside"]


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


async def test_a_round_trip_into_a_fresh_home(tmp_path: Path) -> None:
    taken = await backup(full_home(tmp_path / "old"), target=tmp_path / "b.zip")
    assert isinstance(taken, BackupTaken)
    new = tmp_path / "new"
    done = import_backup(tmp_path / "b.zip", new, now=time.time(), trust=True)
    assert rows(new / "state.db") == 30
    assert rows(new / "profiles/coder/state.db") == 30
    assert (new / ".env").read_text() == "KEY=needle-env\n"
    assert stat.S_IMODE((new / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE((new / "skills/run.sh").stat().st_mode) == 0o700
    assert set(done.dropped) == {ZIP_NOTE}
    assert not [name for name in os.listdir(new) if name.startswith(".import")]


async def test_without_trust_no_credential_comes_in(tmp_path: Path) -> None:
    await backup(full_home(tmp_path / "old"), target=tmp_path / "b.zip")
    done = import_backup(tmp_path / "b.zip", tmp_path / "new", now=time.time())
    assert set(done.dropped) == {
        ZIP_NOTE,
        ".env",
        "auth.json",
        "profiles/coder/.env",
        "profiles/coder/auth.json",
    }
    needles = [
        path for path in (tmp_path / "new").rglob("*") if path.is_file() and b"needle" in path.read_bytes()
    ]
    assert needles == []


PAYLOADS = [
    "gateway.pid", "gateway.lock", "gateway_state.json", "spawn-ledger.json", ".update_response", ".update_prompt.json",
    "processes.json", "chat.sock", "installs/x/current", "bin/nedura", "backups/x.zip", "state-snapshots/x/manifest.json",
    "logs/update_receipts/latest.json", ".hidden/x", "skills/.git/hooks/post-checkout", "state.db-wal", "auth.lock",
    "profiles/../x/config.yaml", "profiles/UPPER/config.yaml", "profiles/only", "profiles/a/gateway.pid",
]  # fmt: skip


@pytest.mark.parametrize("path", PAYLOADS)
def test_runtime_records_and_installs_never_come_in(path: str) -> None:
    assert drop_reason(path, trust=True)


@pytest.mark.parametrize(
    "path",
    [
        "auth.json",
        ".env",
        "plugins/a.py",
        "hooks/a",
        "profiles/a/plugins/x.py",
        "guest_handoff.json",
        "shared/nous_auth.json",
    ],
)
def test_what_decides_trust_comes_in_only_on_request(path: str) -> None:
    assert drop_reason(path, trust=False)
    assert not drop_reason(path, trust=True)


def test_what_was_there_is_kept_in_a_snapshot(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 7)
    (home / "config.yaml").write_text("mine: 1\n")
    make_database(tmp_path / "other/state.db", 9)
    archive = make_zip(
        tmp_path / "a.zip",
        {"state.db": (tmp_path / "other/state.db").read_bytes(), "config.yaml": b"theirs: 1\n"},
    )
    done = import_backup(archive, home, now=time.time())
    assert rows(home / "state.db") == 9
    (name,) = done.safety.values()
    assert (home / "state-snapshots" / name / "config.yaml").read_text() == "mine: 1\n"


@pytest.mark.parametrize("bad", ["../x", "/etc/x", "a/../../x"])
def test_a_hostile_archive_changes_nothing(tmp_path: Path, bad: str) -> None:
    home = tmp_path / "h"
    home.mkdir()
    (home / "config.yaml").write_text("mine: 1\n")
    archive = make_zip(tmp_path / "a.zip", {"config.yaml": b"theirs", bad: b"evil"})
    with pytest.raises(UnsafeArchive):
        import_backup(archive, home, now=time.time(), trust=True)
    assert sorted(os.listdir(home)) == [".backup.lock", "config.yaml"]
    assert (home / "config.yaml").read_text() == "mine: 1\n"


def test_a_link_in_the_home_leads_nothing_out(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    (tmp_path / "precious").mkdir()
    (home / "skills").symlink_to(tmp_path / "precious")
    archive = make_zip(tmp_path / "a.zip", {"skills/x.md": b"evil", "config.yaml": b"a: 1\n"})
    with pytest.raises(RefusedError, match="outside the home"):
        import_backup(archive, home, now=time.time())
    assert os.listdir(tmp_path / "precious") == []
    assert not (home / "config.yaml").exists()


def test_a_database_in_use_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "h"
    make_database(home / "state.db", 7)
    content = (home / "state.db").read_bytes()
    archive = make_zip(tmp_path / "a.zip", {"state.db": content, "config.yaml": b"a: 1\n"})
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.execute("SELECT count(*) FROM t").fetchone()
        with pytest.raises(RefusedError, match="is open in process"):
            import_backup(archive, home, now=time.time())
    assert not (home / "config.yaml").exists()


def test_a_broken_database_in_the_archive_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    archive = make_zip(
        tmp_path / "a.zip", {"state.db": b"SQLite format 3\0" + bytes(5000), "config.yaml": b"a: 1\n"}
    )
    with pytest.raises(StoreError, match=r"state\.db"):
        import_backup(archive, home, now=time.time())
    assert not (home / "config.yaml").exists()


ODD_NAMES = {
    "not UTF-8": b"skills/\xff.md",
    "a line break": b"skills/a\nb.md",
    "a backslash": b"skills/DOMAIN\\me.md",
    "a colon": b"a:b.txt",
    "other case": b"skills/ONE.md",
    "too deep": b"skills/" + b"d/" * 40 + b"x.md",
}


@pytest.mark.parametrize("kind", ODD_NAMES)
async def test_a_backup_can_always_be_imported_again(tmp_path: Path, kind: str) -> None:
    """What no import takes is left out and named; it spoils neither the backup nor the import of everything else."""
    root = full_home(tmp_path / "old")
    odd = Path(os.fsdecode(os.path.join(os.fsencode(root), ODD_NAMES[kind])))
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.write_text("odd")
    taken = await backup(root, target=tmp_path / "b.zip")
    assert isinstance(taken, BackupTaken)
    (left,) = [name for name in taken.skipped if name.isascii() and name.isprintable()]
    assert odd.suffix in left or "md" in left
    json.dumps(taken.skipped).encode()
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=time.time(), trust=True)
    assert rows(tmp_path / "new/state.db") == 30


async def test_lock_files_of_the_users_own_projects_come_along(tmp_path: Path) -> None:
    root = full_home(tmp_path / "old")
    mine = [
        "workspace/poetry.lock",
        "memories/daily-journal",
        "skills/x/uv.lock",
        "profiles/coder/workspace/a.partial",
        "workspace/pod.pid",
    ]
    ours = [
        "auth.lock",
        "gateway-restart.lock",
        "shared/nous_auth.lock",
        "profiles/coder/cron/jobs.json.lock",
    ]
    for name in mine + ours:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    taken = await backup(root, target=tmp_path / "b.zip")
    assert isinstance(taken, BackupTaken)
    assert set(mine) <= members(taken.path)
    assert not members(taken.path) & set(ours)
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=time.time(), trust=True)
    assert all((tmp_path / "new" / name).is_file() for name in mine)


async def test_the_log_of_a_database_of_any_name_is_not_beside_its_copy(tmp_path: Path) -> None:
    """Whoever unpacks the archive by hand would have the log replayed into the consistent copy."""
    root = full_home(tmp_path / "old")
    (root / "memories").mkdir()
    (root / "memories/daily-journal").write_text("mine")
    make_database(root / "workspace/x.sqlite")
    with closing(sqlite3.connect(root / "workspace/x.sqlite", isolation_level=None)) as writer:
        writer.execute("INSERT INTO t(body) VALUES('late')")
        assert (root / "workspace/x.sqlite-wal").exists(), "the trap must be set"
        taken = await backup(root)
    assert isinstance(taken, BackupTaken)
    found = {name for name in members(taken.path) if name.startswith(("workspace", "memories"))}
    assert found == {"workspace/x.sqlite", "memories/daily-journal"}


async def test_a_backup_of_mostly_zeros_comes_back_when_its_owner_vouches_for_it(tmp_path: Path) -> None:
    root = full_home(tmp_path / "old")
    (root / "log").write_bytes(bytes(3_000_000))
    await backup(root, target=tmp_path / "b.zip")
    with pytest.raises(UnsafeArchive) as caught:
        import_backup(tmp_path / "b.zip", tmp_path / "new", now=time.time())
    assert "--large" in caught.value.diagnostics()
    import_backup(tmp_path / "b.zip", tmp_path / "new", now=time.time(), limits=LARGE)
    assert (tmp_path / "new/log").stat().st_size == 3_000_000


HIDDEN = "base: &b\n  operators: ['telegram:666']\ngateway:\n  <<: *b\n  multiplex_profiles: true\n"


@pytest.mark.parametrize(
    "theirs",
    [
        "gateway:\n  operators: ['telegram:666']\n  multiplex_profiles: true\nmodel:\n  base_url: https://evil.example/v1\n",
        HIDDEN,
    ],
)
@pytest.mark.parametrize("mine", ["gateway:\n  operators: ['telegram:1']\n", "a: 1\n", None])
def test_without_trust_no_archive_says_who_may_command_this_home(
    tmp_path: Path, theirs: str, mine: str | None
) -> None:
    """Who may send /update, and where the account's token is sent, are trust as much as a token is."""
    home = tmp_path / "h"
    home.mkdir()
    if mine is not None:
        (home / "config.yaml").write_text(mine)
    before = read_config(home).get("gateway.operators")
    archive = make_zip(tmp_path / "a.zip", {"config.yaml": theirs.encode(), "skills/a.md": b"x"})
    done = import_backup(archive, home, now=time.time())
    found = read_config(home)
    assert found.get("gateway.operators") == before
    assert found.get("model.base_url") is None
    assert "gateway.operators" in done.kept["config.yaml"]
    import_backup(archive, home, now=time.time(), trust=True)
    assert read_config(home).get("gateway.operators") == ["telegram:666"]


def test_an_archive_of_ones_own_that_says_the_same_changes_and_tells_nothing(tmp_path: Path) -> None:
    text = "# mine\ngateway:\n  operators: ['telegram:1']\n"
    archive = make_zip(tmp_path / "a.zip", {"config.yaml": text.encode()})
    (tmp_path / "h").mkdir()
    (tmp_path / "h/config.yaml").write_text(text)
    assert import_backup(archive, tmp_path / "h", now=time.time()).kept == {}
    assert (tmp_path / "h/config.yaml").read_text() == text


@pytest.mark.parametrize("content", [b"hello", b""])
def test_no_file_of_another_kind_takes_the_place_of_a_database(tmp_path: Path, content: bytes) -> None:
    """Beside it the live log would stay, and whatever it held would be gone."""
    home = tmp_path / "h"
    make_database(home / "state.db", 7)
    archive = make_zip(tmp_path / "a.zip", {"state.db": content, "skills/a.md": b"x"})
    with pytest.raises(StoreError, match=r"state\.db .* not a SQLite database"):
        import_backup(archive, home, now=time.time(), trust=True)
    assert rows(home / "state.db") == 7
    assert not (home / "skills").exists()


@pytest.mark.parametrize("path", ["config.yaml/x", "profiles/default/config.yaml", "profiles/a/state.db/x"])
def test_no_folder_takes_the_place_of_a_file_that_a_home_has(path: str) -> None:
    assert drop_reason(path, trust=True)


def test_an_archive_with_a_gap_is_called_damaged(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"skills/a.md": b"x" * 5000, "config.yaml": b"a: 1\n"})
    data = archive.read_bytes()
    archive.write_bytes(data[:2000] + data[2007:])
    with pytest.raises(StoreError, match="damaged") as caught:
        import_backup(archive, tmp_path / "h", now=time.time())
    assert "space" not in caught.value.diagnostics()
