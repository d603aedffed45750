"""The stores on disk: `auth.json` of a profile and the shared store of its root (facts/signin.md 2).

Lock order: profile auth lock, then the lock of the store an entry was read from, then the shared lock. Both write seams (the profile
store and the shared store) tell the hand-off about a free tier that an account replaces, under these locks, before anything is written.

Everything here blocks (locks up to 15 s, fsync): async code calls it in a thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from nedura.errors import LockTimeout, RecordCorrupt, RecordMissing, StoreError
from nedura.homes import profile_name, root_home
from nedura.locks import locked
from nedura.product import NEDURA, Product
from nedura.records import drop_temps, make_folder, parse_json, read_bytes, write_json
from nedura.signin.auth_state import AuthState, Saved
from nedura.signin.authfile import (
    check_document,
    differs,
    empty_document,
    entry_of,
    with_entry,
    without_entry,
)
from nedura.signin.identity import Entry, auth_error, identity_key, is_guest, quarantined
from nedura.signin.renewal import stamped
from nedura.signin.shared import SharedWrite, after_drop, after_sign_out, after_write, held_of, newest_for
from nedura.signin.store_files import MAX_STORE, check_owner, read_store, set_aside, tighten
from nedura.signin.tokens import fingerprint, subject_of
from nedura.text import clean

__all__ = ["AccountStore", "AuthState", "NoteReplacement", "Saved", "Transaction"]

LOCK_TIMEOUT: Final = 15.0
"""Seconds that a lock is waited for."""

log = logging.getLogger("nedura.signin")


class NoteReplacement(Protocol):
    """Hears of a value that is about to be replaced; writes a pending hand-off at most and never raises."""

    def __call__(self, home: Path, *, old: Entry | None, new: Entry, now: float) -> None:
        """Called under the auth locks, before the new value reaches the disk."""
        ...


def _note(home: Path, *, old: Entry | None, new: Entry, now: float) -> None:
    from nedura.signin.handoff_record import note_replacement

    note_replacement(home, old=old, new=new, now=now)


class AccountStore:
    """The account stores of one profile.

    Args:
        home: the profile's home.
        environ: real environment; names the shared folder and the native home.
        product: names.
        note: hears of replaced values; the default is the guest hand-off.
        lock_timeout: seconds to wait for a lock.
    """

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str] | None = None,
        product: Product = NEDURA,
        note: NoteReplacement = _note,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.home = home
        self.root = root_home(home, environ)
        named = product.setting(environ, "SHARED_AUTH_DIR")
        self.shared_folder = (
            Path(os.path.abspath(os.path.expanduser(named))) if named else self.root / "shared"
        )
        self.lock_timeout = lock_timeout
        self.note = note

    @property
    def path(self) -> Path:
        """The profile's auth.json."""
        return self.home / "auth.json"

    @property
    def root_path(self) -> Path:
        """The root profile's auth.json, which a named profile without its own login reads."""
        return self.root / "auth.json"

    @property
    def shared_path(self) -> Path:
        """The shared store."""
        return self.shared_folder / "nous_auth.json"

    @property
    def shared_lock(self) -> Path:
        """Its lock."""
        return self.shared_folder / "nous_auth.lock"

    def read(self) -> AuthState:
        """Look at the stores without any lock: each file is whole because it is only ever replaced.

        Raises:
            RecordUnreadable, UnsafePath: a store that cannot be read is an error, never an empty one.
        """
        damaged = False
        try:
            document = read_store(self.path) or empty_document()
        except RecordCorrupt:
            document, damaged = empty_document(), True
        entry, source = entry_of(document), self.path
        if entry is None and not damaged and self.home != self.root:
            try:
                inherited = entry_of(read_store(self.root_path) or {})
            except RecordCorrupt:
                inherited = None
            if inherited is not None:
                entry, source = inherited, self.root_path
        shared, shared_damaged, problem = self._read_shared()
        return AuthState(
            home=self.home,
            document=document,
            entry=entry,
            source=source,
            shared=shared,
            damaged=damaged,
            shared_damaged=shared_damaged,
            shared_problem=problem,
        )

    def _read_shared(self) -> tuple[Entry | None, bool, str]:
        try:
            value = parse_json(read_bytes(self.shared_path, MAX_STORE), "The shared store")
        except RecordMissing:
            return None, False, ""
        except StoreError as error:
            return None, isinstance(error, RecordCorrupt), error.message
        return (
            (value, False, "")
            if isinstance(value, Mapping)
            else (None, True, "The shared store makes no sense.")
        )

    def used_elsewhere(self, entry: Entry) -> bool:
        """Whether another profile of the root has the same identity in its own store; one that cannot be read counts as yes."""
        key = identity_key(entry)
        others = {self.root_path, *(self.root / "profiles").glob("*/auth.json")} - {self.path}
        for path in others:
            try:
                other = entry_of(read_store(path) or {})
            except StoreError:
                return True
            if other is not None and identity_key(other) == key:
                return True
        return False

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[Transaction]:
        """Hold the profile's lock, the lock of the store its entry comes from, and the shared lock; then look again.

        Blocks the thread, at most `timeout` seconds a lock. Never `await` inside it.

        Raises:
            LockTimeout: somebody else kept a lock.
            StoreError: a store or lock cannot be used.
            RefusedError: root acts on another user's home.
        """
        timeout = self.lock_timeout if timeout is None else timeout
        check_owner(self.home)
        make_folder(self.home)
        tighten(self.home)
        with ExitStack() as stack:
            name = clean(profile_name(self.home, self.root), 80)
            stack.enter_context(
                locked(self.home / "auth.lock", timeout, f"The account store of profile {name}")
            )
            state = self.read()
            if state.inherited:
                stack.enter_context(
                    locked(self.root / "auth.lock", timeout, "The account store of the default profile")
                )
            problem = self._lock_shared(stack, timeout)
            for path in (self.path,) if problem else (self.path, self.shared_path):
                drop_temps(path)
            yield Transaction(self, self.read(), shared_blocked=problem)

    def _lock_shared(self, stack: ExitStack, timeout: float) -> str:
        """Take the shared lock; why it cannot be had when its folder is unusable, which stops no sign-in or sign-out."""
        try:
            make_folder(self.shared_folder)
            stack.enter_context(locked(self.shared_lock, timeout, "The shared account store"))
        except LockTimeout:
            raise
        except StoreError as error:
            log.warning("shared account store: %s", error.message)
            return error.message
        return ""

    def save_account(
        self, entry: Entry, *, renewal: bool, now: float, label: str = "", priority: int | None = None
    ) -> Saved:
        """Save an account in one transaction.

        Args:
            entry: the account (`identity.account_entry`).
            renewal: False when a person signed in, True for a refresh.
            now: unix seconds.
            label: name of the login.
            priority: its order among several.

        Raises:
            StoreError: it could not be saved; the stores are as they were.
        """
        with self.transaction() as transaction:
            return transaction.save_account(entry, renewal=renewal, now=now, label=label, priority=priority)

    def save_guest(self, entry: Entry, *, renewal: bool, now: float) -> Saved:
        """Save a free-tier identity in one transaction; `renewal` is False for a mint, True for a re-exchange.

        Raises:
            StoreError: it could not be saved.
        """
        with self.transaction() as transaction:
            return transaction.save_guest(entry, renewal=renewal, now=now)


class Transaction:
    """The stores under their locks. Made by `AccountStore.transaction`.

    Attributes:
        state: what the stores hold now; renewed by each write.
    """

    def __init__(self, store: AccountStore, state: AuthState, *, shared_blocked: str = "") -> None:
        self._store = store
        self._shared_blocked = shared_blocked
        self.state = state

    def save_account(
        self, entry: Entry, *, renewal: bool, now: float, label: str = "", priority: int | None = None
    ) -> Saved:
        """Write an account. A refresh goes back to the store it was read from (#56361), a sign-in to the profile.

        Raises:
            StoreError: the profile's store could not be written; it is as it was.
        """
        clean_entry = {name: value for name, value in entry.items() if name != "last_auth_error"}
        return self._save(
            clean_entry, renewal=renewal, now=now, activate=not renewal, label=label, priority=priority
        )

    def save_guest(self, entry: Entry, *, renewal: bool, now: float) -> Saved:
        """Write a free-tier identity; a mint never makes it the active provider.

        Raises:
            StoreError: the profile's store could not be written.
        """
        return self._save(entry, renewal=renewal, now=now, activate=False)

    def quarantine(self, *, code: str, message: str, reason: str, now: float) -> Saved:
        """Strip a dead account of its tokens here, in the shared store and in the pool, and keep the cause.

        Raises:
            StoreError: the store could not be written.
        """
        entry = self.state.entry or {}
        for name in ("access_token", "refresh_token"):
            if isinstance(entry.get(name), str) and entry[name]:
                log.warning("sign-in ended (%s): %s %s", clean(code, 60), name, fingerprint(entry[name]))
        dead = quarantined(entry, code=code, message=clean(message), reason=reason, now=now)
        self._write_profile(dead, now, activate=False, at_source=True)
        problem = self._write_shared(after_drop(self.state.shared, entry, now))
        self._refresh()
        return Saved(shared_problem=problem)

    def spent(self, *, message: str, now: float) -> Saved:
        """Drop a refresh token that left and got no answer: it must never leave again. The access token lives on until its end.

        Raises:
            StoreError: the store could not be written.
        """
        entry = {name: value for name, value in (self.state.entry or {}).items() if name != "refresh_token"}
        left = entry | {"last_auth_error": auth_error("refresh_lost", clean(message), "refresh", now)}
        self._write_profile(left, now, activate=False, at_source=True)
        self._refresh()
        return Saved()

    def forget(self, now: float) -> Saved:
        """Sign this profile out: its entry, its pool row and, when it is the held or renewed identity, the shared copy.

        Raises:
            StoreError: the store could not be written.
        """
        entry = entry_of(self.state.document)
        aside = self._set_aside()
        changed = entry is not None or aside is not None
        if changed:
            write_json(self._store.path, without_entry(self.state.document, now))
        problem = ""
        if entry:
            used = self._store.used_elsewhere(entry)
            problem = self._write_shared(after_sign_out(self.state.shared, entry, now, still_used=used))
        self._refresh()
        return Saved(changed=changed, set_aside=aside, shared_problem=problem)

    def adopt(self, entry: Entry, now: float) -> Saved:
        """Take the root's identity into this profile; the shared store already holds it and stays as it is.

        Raises:
            StoreError: the profile's store could not be written.
        """
        old = entry_of(self.state.document)
        self._store.note(self._store.home, old=old, new=entry, now=now)
        aside = self._write_profile(entry, now, activate=not is_guest(entry))
        self._refresh()
        return Saved(set_aside=aside)

    def put_entry(self, entry: Entry, now: float) -> None:
        """Write the profile seam alone: an entry back to the store it was read from, with its pool row.

        Raises:
            StoreError: it could not be written; the store is as it was.
        """
        home = self._store.root if self.state.inherited else self._store.home
        old = self.state.entry if self.state.inherited else entry_of(self.state.document)
        self._store.note(home, old=old, new=entry, now=now)
        self._write_profile(entry, now, activate=False, at_source=True)
        self._refresh()

    def put_shared(self, document: Mapping[str, Any], now: float) -> None:
        """Write the shared seam alone: a document that the rules of `shared` decided.

        Raises:
            StoreError: it could not be written; the store is as it was.
        """
        if self._shared_blocked:
            raise StoreError(self._shared_blocked)
        held = held_of(document)
        if held is not None and identity_key(held) != identity_key(self.state.held):
            self._store.note(self._store.home, old=self.state.held, new=held, now=now)
        if self.state.shared_damaged:
            set_aside(self._store.shared_path)
        write_json(self._store.shared_path, document, sort_keys=True)
        self._refresh()

    def edit(self, change: Callable[[dict[str, Any]], None], now: float) -> None:
        """Change other parts of the profile's auth.json.

        Raises:
            StoreError: it could not be written.
        """
        self._set_aside()
        document = {**self.state.document}
        change(document)
        write_json(self._store.path, check_document(document, "auth.json"))
        self._refresh()

    def _save(
        self,
        entry: Entry,
        *,
        renewal: bool,
        now: float,
        activate: bool,
        label: str = "",
        priority: int | None = None,
    ) -> Saved:
        store = self._store
        if not is_guest(entry) and entry.get("access_token") != (self.state.entry or {}).get("access_token"):
            newest = newest_for(self.state.shared, subject_of(entry.get("access_token")))
            entry = stamped(entry, self.state.entry, newest)
        shared = after_write(self.state.shared, entry, renewal=renewal, now=now)
        inherited = self.state.entry if self.state.inherited else None
        at_source = renewal and inherited is not None and identity_key(inherited) == identity_key(entry)
        old = inherited if at_source else entry_of(self.state.document)
        target = store.root if at_source else store.home
        # Both seams speak before anything is written: a crash then leaves a harmless record, never a lost one.
        store.note(target, old=old, new=entry, now=now)
        if shared.replaced is not None:
            store.note(store.home, old=shared.replaced, new=entry, now=now)
        changed = activate or differs(old, entry) or bool(label)
        aside = None
        if changed:
            aside = self._write_profile(
                entry, now, activate=activate, at_source=at_source, label=label, priority=priority
            )
        problem = self._write_shared(shared)
        self._refresh()
        return Saved(changed=changed, set_aside=aside, shared_problem=problem)

    def _write_profile(
        self,
        entry: Entry,
        now: float,
        *,
        activate: bool,
        at_source: bool = False,
        label: str = "",
        priority: int | None = None,
    ) -> Path | None:
        store, document = self._store, self.state.document
        path = store.path
        if at_source and self.state.inherited:
            path, document = store.root_path, read_store(store.root_path) or empty_document()
        aside = self._set_aside() if path == store.path else None
        write_json(path, with_entry(document, entry, now, activate=activate, label=label, priority=priority))
        return aside

    def _set_aside(self) -> Path | None:
        return set_aside(self._store.path) if self.state.damaged else None

    def _write_shared(self, write: SharedWrite) -> str:
        """Write the shared store; a failure is told, never fatal: this profile's own login stands (facts/signin.md 2.4)."""
        if write.document is None:
            return ""
        if self._shared_blocked:
            return self._shared_blocked
        path = self._store.shared_path
        if self.state.shared_problem and not self.state.shared_damaged:
            log.warning("shared account store: %s", self.state.shared_problem)
            return self.state.shared_problem  # unreadable is never replaced
        try:
            if self.state.shared_damaged:
                set_aside(path)
            write_json(path, write.document, sort_keys=True)
        except StoreError as error:
            log.warning("shared account store: %s", error.message)
            return error.message
        return ""

    def _refresh(self) -> None:
        self.state = self._store.read()
