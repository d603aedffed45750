"""The account stores on a real file system."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import LockTimeout, RefusedError, StoreError, UnsafePath
from nedura.locks import locked
from nedura.signin.accounts import AccountStore
from nedura.signin.identity import Kind, identity_key
from nedura.signin.shared import renewals_of
from tests.integration.signin.world import auth_lock_held
from tests.unit.signin.tokens import NOW, account, guest


@attrs.define
class Notes:
    """Hears what the seams say."""

    heard: list[tuple[str, Any, Any]] = attrs.field(factory=list)

    def __call__(
        self, home: Path, *, old: Mapping[str, Any] | None, new: Mapping[str, Any], now: float
    ) -> None:
        self.heard.append((home.name, identity_key(old), identity_key(new)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "root"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def notes() -> Notes:
    return Notes()


def opened(home: Path, notes: Notes | None = None, timeout: float = 2) -> AccountStore:
    return AccountStore(home, environ={}, note=notes or Notes(), lock_timeout=timeout)


def profile(root: Path, name: str) -> Path:
    home = root / "profiles" / name
    home.mkdir(parents=True, mode=0o700, exist_ok=True)
    return home


def test_a_saved_account_is_read_back(root: Path) -> None:
    store = opened(root)
    store.save_account(account("a"), renewal=False, now=NOW, label="work")
    state = store.read()
    assert state.kind(NOW) is Kind.ACCOUNT
    assert (state.subject, state.email) == ("a", "ada@example.test")
    assert state.document["active_provider"] == "nous"
    assert state.document["version"] == 1
    assert state.document["updated_at"].endswith("Z")
    assert state.document["credential_pool"]["nous"][0]["source"] == "device_code"
    assert state.document["credential_pool"]["nous"][0]["label"] == "work"
    assert identity_key(state.held) == ("account", "a")
    assert json.loads(store.shared_path.read_text())["_schema"] == 1


def test_modes_are_private_whatever_the_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        root.chmod(0o755)
        opened(root).save_account(account(), renewal=False, now=NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    for path in root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_unknown_keys_and_other_providers_survive(root: Path) -> None:
    foreign = {
        "version": 7, "future": {"x": [1]}, "providers": {"other": {"k": "v"}, "nous": {"new_field": 1}},
        "credential_pool": {"other": [{"a": 1}], "nous": [{"source": "manual", "access_token": "m"}]},
        "suppressed_sources": {"env": True},
    }  # fmt: skip
    (root / "auth.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(foreign).encode())
    opened(root).save_account(account(), renewal=False, now=NOW)
    document = json.loads((root / "auth.json").read_text())
    assert document["version"] == 7
    assert document["future"] == {"x": [1]}
    assert document["providers"]["other"] == {"k": "v"}
    assert document["credential_pool"]["other"] == [{"a": 1}]
    assert [row["source"] for row in document["credential_pool"]["nous"]] == ["manual", "device_code"]
    assert document["suppressed_sources"] == {"env": True}


def test_the_older_shape_is_moved(root: Path) -> None:
    (root / "auth.json").write_text(json.dumps({"systems": {"nous_portal": account("old"), "x": {}}}))
    store = opened(root)
    assert store.read().subject == "old"
    with store.transaction() as transaction:
        transaction.edit(lambda document: document.update(mark=1), NOW)
    document = json.loads((root / "auth.json").read_text())
    assert document["providers"]["nous"]["refresh_token"] == "rt-1"
    assert document["systems"] == {"x": {}}
    assert document["mark"] == 1


DAMAGED = [b"", b"{", b"[]", b'"x"', b"\xff\xfe\x00", b'{"providers": []}', b'{"providers": {"nous": "x"}}',
           b'{"credential_pool": 5}', b"[" * 200_000, b"x" * 5_000_000]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_store_is_said_and_kept_aside(root: Path, content: bytes) -> None:
    path = root / "auth.json"
    path.write_bytes(content)
    path.chmod(0o644)
    store = opened(root)
    assert store.read().damaged
    assert path.read_bytes() == content
    saved = store.save_account(account(), renewal=False, now=NOW)
    assert saved.set_aside == root / "auth.json.corrupt"
    assert saved.set_aside.read_bytes() == content
    assert stat.S_IMODE(saved.set_aside.stat().st_mode) == 0o600
    assert store.read().kind(NOW) is Kind.ACCOUNT


def test_a_store_cut_anywhere_is_whole_or_damaged_never_empty(root: Path) -> None:
    store = opened(root)
    store.save_account(account(), renewal=False, now=NOW)
    whole = (root / "auth.json").read_bytes()
    for cut in range(0, len(whole) - 1, 64):
        (root / "auth.json").write_bytes(whole[:cut])
        assert store.read().damaged, cut


@pytest.mark.parametrize("kind", ["symlink", "fifo", "folder", "hardlink"])
def test_what_is_no_file_of_ours_is_an_error_and_stays(root: Path, tmp_path: Path, kind: str) -> None:
    path, victim = root / "auth.json", tmp_path / "victim"
    victim.write_text("precious")
    match kind:
        case "symlink":
            path.symlink_to(victim)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            os.link(victim, path)
    store = opened(root)
    start = time.monotonic()
    with pytest.raises(UnsafePath):
        store.read()
    with pytest.raises(UnsafePath):
        store.save_account(account(), renewal=False, now=NOW)
    assert time.monotonic() - start < 2
    assert victim.read_text() == "precious"


def test_a_failed_write_leaves_the_store_as_it_was(root: Path) -> None:
    store = opened(root)
    store.save_account(account("a"), renewal=False, now=NOW)
    before = (root / "auth.json").read_bytes()
    with store.transaction() as transaction, pytest.raises((StoreError, TypeError)):
        transaction.save_account(account("b", bad=object()), renewal=False, now=NOW)
    assert (root / "auth.json").read_bytes() == before
    assert not [path for path in root.iterdir() if ".tmp." in path.name]


def test_a_named_profile_reads_the_root_login_and_refreshes_it_there(root: Path) -> None:
    opened(root).save_account(account("a"), renewal=False, now=NOW)
    store = opened(profile(root, "coder"))
    state = store.read()
    assert state.inherited
    assert state.source == root / "auth.json"
    assert state.subject == "a"
    store.save_account(account("a", refresh="rt-2", at=NOW + 5), renewal=True, now=NOW + 5)
    assert not store.path.exists()
    assert json.loads((root / "auth.json").read_text())["providers"]["nous"]["refresh_token"] == "rt-2"


def test_a_sign_in_of_a_named_profile_is_its_own(root: Path) -> None:
    opened(root).save_account(account("a"), renewal=False, now=NOW)
    store = opened(profile(root, "coder"))
    store.save_account(account("b"), renewal=False, now=NOW + 5)
    assert store.read().subject == "b"
    assert not store.read().inherited
    assert opened(root).read().subject == "a"
    assert "a" in renewals_of(store.read().shared)


def test_a_home_outside_the_tree_has_no_root_to_fall_back_to(root: Path, tmp_path: Path) -> None:
    opened(root).save_account(account("a"), renewal=False, now=NOW)
    assert opened(tmp_path / "elsewhere").read().entry is None


def test_both_seams_speak_before_anything_is_written(root: Path) -> None:
    order: list[str] = []

    def note(home: Path, *, old: Any, new: Any, now: float) -> None:
        order.append(json.loads((home / "auth.json").read_text())["providers"]["nous"]["auth_method"])

    store = AccountStore(root, environ={}, note=note)
    store.note = Notes()
    store.save_guest(guest(), renewal=False, now=NOW)
    store.note = note
    store.save_account(account("a"), renewal=False, now=NOW)
    assert order == ["anonymous", "anonymous"]


def test_a_replaced_free_tier_is_named_by_both_seams(root: Path, notes: Notes) -> None:
    store = opened(root, notes)
    store.save_guest(guest(), renewal=False, now=NOW)
    notes.heard.clear()
    store.save_account(account("a"), renewal=False, now=NOW)
    key = ("guest", guest()["anon_token"])
    assert notes.heard == [("root", key, ("account", "a"))] * 2
    for path in (store.path, store.shared_path):
        assert "anon_token" not in path.read_text()


def test_a_mint_is_never_the_active_provider(root: Path) -> None:
    store = opened(root)
    store.save_guest(guest(), renewal=False, now=NOW)
    assert store.read().document["active_provider"] is None
    assert store.read().kind(NOW) is Kind.GUEST
    assert "nous" not in store.read().document["credential_pool"]


def test_a_write_of_the_countdowns_alone_is_left_out(root: Path) -> None:
    store = opened(root)
    store.save_account(account("a", agent_key_expires_in=5), renewal=False, now=NOW)
    before = os.stat(store.path).st_mtime_ns
    saved = store.save_account(account("a", expires_in=1, agent_key_expires_in=1), renewal=True, now=NOW)
    assert not saved.changed
    assert os.stat(store.path).st_mtime_ns == before


def test_quarantine_strips_every_copy_and_logs_no_token(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(root)
    store.save_account(account("a", refresh="rt-secret"), renewal=False, now=NOW)
    with store.transaction() as transaction:
        transaction.quarantine(code="invalid_grant", message="m", reason="refresh", now=NOW)
    state = store.read()
    assert state.kind(NOW) is Kind.DEAD
    assert state.held is None
    for path in (store.path, store.shared_path):
        assert "rt-secret" not in path.read_text()
    assert "rt-secret" not in caplog.text
    assert "nous" not in state.document["credential_pool"]


def test_signing_out_forgets_this_identity_only(root: Path) -> None:
    opened(root).save_account(account("a"), renewal=False, now=NOW)
    coder = opened(profile(root, "coder"))
    coder.save_account(account("b"), renewal=False, now=NOW + 1)
    with opened(root).transaction() as transaction:
        assert transaction.forget(NOW + 2).changed
    assert opened(root).read().kind(NOW) is Kind.NONE
    assert coder.read().subject == "b"
    assert identity_key(coder.read().held) == ("account", "b")
    assert renewals_of(coder.read().shared) == {}


def test_a_shared_store_that_cannot_be_read_is_never_replaced(root: Path, tmp_path: Path) -> None:
    store = opened(root)
    store.shared_folder.mkdir()
    store.shared_path.symlink_to(tmp_path / "elsewhere")
    saved = store.save_account(account("a"), renewal=False, now=NOW)
    assert saved.shared_problem
    assert store.shared_path.is_symlink()
    assert not (tmp_path / "elsewhere").exists()
    assert store.read().kind(NOW) is Kind.ACCOUNT


def test_a_torn_shared_store_is_kept_aside(root: Path) -> None:
    store = opened(root)
    store.shared_folder.mkdir()
    store.shared_path.write_bytes(b'{"access_tok')
    assert store.read().shared_damaged
    assert store.save_account(account("a"), renewal=False, now=NOW).shared_problem == ""
    assert (store.shared_folder / "nous_auth.json.corrupt").read_bytes() == b'{"access_tok'


def test_a_lock_that_is_kept_names_its_holder(root: Path) -> None:
    store = opened(root, timeout=0.2)
    with auth_lock_held(root), pytest.raises(LockTimeout) as caught:
        store.save_account(account(), renewal=False, now=NOW)
    assert caught.value.holder == os.getpid()
    assert "default" in caught.value.message


def test_reading_needs_no_lock(root: Path) -> None:
    store = opened(root)
    store.save_account(account("a"), renewal=False, now=NOW)
    with locked(root / "auth.lock"), locked(store.shared_lock):
        result: list[str] = []
        thread = threading.Thread(target=lambda: result.append(store.read().subject))
        thread.start()
        thread.join(2)
    assert result == ["a"]


def test_the_shared_folder_can_be_named(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    store = AccountStore(root, environ={"NEDURA_SHARED_AUTH_DIR": str(folder)}, note=Notes())
    store.save_account(account("a"), renewal=False, now=NOW)
    assert (folder / "nous_auth.json").exists()
    assert not (root / "shared").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0")
async def test_root_never_signs_in_for_another_user(tmp_path: Path) -> None:
    """Nothing is asked of the portal, and nothing of root's is left in the home (hermes#15718)."""
    from tests.integration.signin.world import World

    home = tmp_path / "theirs"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    world = World(home=home)
    failed = await world.last()
    assert failed.kind == "failed"
    assert "sudo -u '#65534'" in failed.copy_terminal
    assert world.routes() == []
    assert list(home.iterdir()) == []
    with pytest.raises(RefusedError):
        opened(home).save_account(account(), renewal=False, now=NOW)
    assert list(home.iterdir()) == []
