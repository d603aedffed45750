"""Field reports on the stores of a sign-in: full, hanging, unreadable, shared, and closed to others; each by its id."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from nedura.errors import RecordUnreadable, StoreError
from nedura.signin import (
    AccountStore,
    Failed,
    LoginOptions,
    Parts,
    log_out,
)
from tests.integration.signin.world import World
from tests.unit.signin.tokens import NOW, account


@pytest.fixture
def world(tmp_path: Path) -> World:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return World(home=home)


def _blocked(home: Path, **given: Any) -> AccountStore:
    class Blocked(AccountStore):
        def transaction(self, timeout: float | None = None) -> Any:
            threading.Event().wait(3)
            raise StoreError("the key store does not answer")

    return Blocked(home, **given)


async def test_c132_a_store_that_hangs_or_fails_is_failed_in_bounded_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    state = await world.last(parts=Parts(store=_blocked, save_seconds=0.4))
    assert isinstance(state, Failed)
    assert loop.time() - start < 2
    assert "could not be saved" in caplog.text
    assert "disk" not in state.copy
    assert world.files() == {}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0 for a tiny file system")
@pytest.mark.parametrize("trouble", ["full", "read_only"])
async def test_c132_a_full_or_read_only_disk_is_failed_and_nothing_is_half_saved(
    tmp_path: Path, trouble: str
) -> None:
    home = tmp_path / "tiny"
    home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mount is not allowed here")
    try:
        world = World(home=home)
        await world.last()
        before = world.files()
        if trouble == "full":
            handle = os.open(home / "ballast", os.O_WRONLY | os.O_CREAT)
            with pytest.raises(OSError, match="No space"):
                while True:
                    os.write(handle, b"x" * 4096)
            os.close(handle)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        state = await world.last(options=LoginOptions(replace=True))
        assert isinstance(state, Failed)
        assert not state.saved
        assert {name: data for name, data in world.files().items() if name != "ballast"} == before
        assert all(family.revoked for family in world.portal.store.families[1:])  # given back
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False)


def test_c138_a_store_that_cannot_be_read_is_never_taken_for_empty(tmp_path: Path) -> None:
    import resource

    store = AccountStore(tmp_path, environ={})
    store.save_account(account("a"), renewal=False, now=NOW)
    before = store.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(RecordUnreadable):
            store.read()
        with pytest.raises(StoreError):
            store.save_account(account("b"), renewal=False, now=NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store.path.read_bytes() == before


def _unreadable(home: str) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    store = AccountStore(Path(home), environ={})
    for attempt in (store.read, lambda: store.save_account(account("b"), renewal=False, now=NOW)):
        try:
            attempt()
        except StoreError:
            continue
        os._exit(3)
    os._exit(0)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0 for a second user")
@pytest.mark.parametrize("owner", ["nobody_mode_000", "root"])
def test_c138_mode_000_or_an_owner_root_changes_nothing(tmp_path: Path, owner: str) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    AccountStore(home, environ={}).save_account(account("a"), renewal=False, now=NOW)
    path = home / "auth.json"
    before = path.read_bytes()
    os.chown(home, 65534, 65534)
    for child in home.rglob("*"):
        os.chown(child, 65534, 65534)
    if owner == "root":
        os.chown(path, 0, 0)
    else:
        path.chmod(0)
    process = multiprocessing.get_context("spawn").Process(target=_unreadable, args=(str(home),))
    process.start()
    process.join(40)
    assert process.exitcode == 0
    assert path.read_bytes() == before


def _add(home: str, name: str, count: int) -> None:
    store = AccountStore(Path(home), environ={})
    for number in range(count):
        with store.transaction() as transaction:
            transaction.edit(lambda doc, n=number: doc["providers"].update({f"{name}{n}": {"n": n}}), NOW)  # type: ignore[misc]


def test_c139_two_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(str(tmp_path), name, 100)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(55)
        assert worker.exitcode == 0
    assert len(AccountStore(tmp_path, environ={}).read().document["providers"]) == 200


async def test_c139_corrupt_copies_are_numbered_and_private_and_sign_out_works_on_them(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    for number in range(3):
        damaged = b'{"providers": {"nous": {"access_token": "x%d' % number
        (tmp_path / "auth.json").write_bytes(damaged[:40] + b"%d" % number)
        out = await log_out(tmp_path, environ={})
        assert out.changed
    copies = sorted(tmp_path.glob("auth.json.corrupt*"))
    assert [path.name for path in copies] == [
        "auth.json.corrupt",
        "auth.json.corrupt.1",
        "auth.json.corrupt.2",
    ]
    assert len({path.read_bytes() for path in copies}) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in copies)


def test_c185_every_copy_of_a_store_is_private_from_its_first_byte(tmp_path: Path) -> None:
    """A watcher looks at every file of the home while stores are written and put aside under umask 0."""
    tmp_path.chmod(0o700)
    seen: set[tuple[str, int]] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for entry in os.scandir(tmp_path):
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(info.st_mode):
                    seen.add((entry.name.split(".tmp")[0], stat.S_IMODE(info.st_mode) & 0o077))

    before = os.umask(0)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        store = AccountStore(tmp_path, environ={})
        for number in range(60):
            store.save_account(
                account("a", refresh=f"r{number}", at=NOW + number), renewal=False, now=NOW + number
            )
        descriptor = os.open(store.path, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, b"{")
        os.close(descriptor)
        store.save_account(account("b"), renewal=False, now=NOW + 99)
    finally:
        os.umask(before)
        done.set()
        watcher.join()
    assert {mode for _, mode in seen} == {0}
    assert any(name.startswith("auth.json.corrupt") for name in os.listdir(tmp_path))


def test_c185_the_trap_of_the_watcher_works(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "open").write_text(json.dumps({}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) & 0o077
