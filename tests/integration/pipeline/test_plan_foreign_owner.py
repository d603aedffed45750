"""Who the home or the checkout belongs to is judged before anything is written there: root would lock its owner out (threats.md 4)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from nedura.errors import NeduraError, RefusedError, StoreError
from nedura.locks import FileLock
from nedura.product import NEDURA
from nedura.records import append_line, make_folder, open_ours, write_bytes, write_json
from nedura.update import Run, UpdateFinished, UpdateOptions
from nedura.update.generation.places import check_home_place
from nedura.update.ledger.lock import UpdateLock
from nedura.update.parts import Refusal
from tests.kits.pipeline import Toy

STRANGER = 4242
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be abroad")

WRITERS: dict[str, Callable[[Path], object]] = {
    "folder": lambda home: make_folder(home / "a/b"),
    "record": lambda home: write_bytes(home / "record", b"x"),
    "json": lambda home: write_json(home / "record.json", {}),
    "log": lambda home: append_line(home / "log", "x"),
    "lock": lambda home: FileLock(home / "lock").try_acquire(),
    "open": lambda home: open_ours(home / "open", os.O_RDWR | os.O_CREAT),
}


@pytest.fixture
def abroad(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, STRANGER, STRANGER)
    yield home
    assert os.listdir(home) == [], "root left something in another user's home"


@pytest.mark.root
@root_only
@pytest.mark.parametrize("name", WRITERS)
def test_root_makes_nothing_in_another_users_folder(abroad: Path, name: str) -> None:
    with pytest.raises(StoreError, match=f"belongs to user {STRANGER}") as told:
        WRITERS[name](abroad)
    assert told.value.exit_code == 2
    assert f"sudo -u '#{STRANGER}'" in told.value.advice


def answer(toy: Toy, said: Refusal | NeduraError) -> Callable[[Run], Awaitable[Refusal | None]]:
    """An admission that says this, after it has found the install."""

    async def admit(run: Run) -> Refusal | None:
        await toy.admit(run)
        if isinstance(said, NeduraError):
            raise said
        return said

    return admit


async def last_of(toy: Toy, said: Refusal | NeduraError) -> UpdateFinished:
    last, _ = await toy.run(UpdateOptions(), admit=answer(toy, said))
    assert toy.calls == []
    return last


def refusal_of_place(home: Path, me: int) -> RefusedError:
    with pytest.raises(RefusedError) as told:
        check_home_place(home, me=me)
    return told.value


@pytest.mark.root
@root_only
async def test_an_update_of_another_users_home_is_refused_with_the_right_command(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home")
    os.chown(toy.home, STRANGER, STRANGER)
    before = sorted(toy.home.rglob("*"))
    last = await last_of(toy, refusal_of_place(toy.home, 0))
    assert (last.outcome, last.exit_code, last.receipt) == ("refused", 2, "")
    assert f"sudo -u '#{STRANGER}'" in last.stop_reason
    assert sorted(toy.home.rglob("*")) == before


async def test_a_home_of_another_owner_gets_nothing_even_where_it_could_be_written(tmp_path: Path) -> None:
    """A shared group lets us write there; the owner could not replace what we leave."""
    toy = Toy(tmp_path / "home")
    before = sorted(toy.home.rglob("*"))
    last = await last_of(toy, refusal_of_place(toy.home, os.geteuid() + 1))
    assert (last.outcome, last.exit_code) == ("refused", 2)
    assert sorted(toy.home.rglob("*")) == before


async def test_who_updates_this_install_is_said_also_where_nothing_can_be_locked(tmp_path: Path) -> None:
    """An image with a read-only home, a full disk: the answer is the pull command, not the lock (C007)."""
    toy = Toy(tmp_path / "home")
    (toy.home / ".nedura-update.mutex").mkdir()
    last = await last_of(
        toy, Refusal(code="docker", message="It is an image.", command="docker pull x:latest")
    )
    assert (last.outcome, last.exit_code, last.stop_class) == ("refused", 2, "docker")
    assert "docker pull x:latest" in last.stop_reason


async def test_who_updates_this_install_is_said_also_while_another_run_holds_the_lock(
    tmp_path: Path,
) -> None:
    toy = Toy(tmp_path / "home")
    other = UpdateLock(tmp_path / "other", toy.paths.folder / ".nedura-update.lock", NEDURA, {})
    other.acquire(1.0)
    try:
        last = await last_of(toy, Refusal(code="external", message="Puppet does.", exit_code=0))
    finally:
        other.release()
    assert (last.exit_code, last.stop_class) == (0, "external")
    assert not (toy.home / "logs/update_receipts/latest.json").exists(), "it belongs to who holds the lock"
