"""Where hand-off records live: `<home>/guest_handoff.json`, 0600, under a leaf lock (decision 10).

Lock order: profile auth -> shared auth -> hand-off. Whoever holds the hand-off lock takes no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import iso, parse_iso
from nedura.errors import RecordCorrupt, RecordMissing, StoreError
from nedura.locks import locked
from nedura.records import drop_temps, make_folder, read_bytes, read_json, remove, write_bytes, write_json
from nedura.signin.handoff_rules import Record, State, advanced, note, pruned, record_id
from nedura.signin.identity import Entry, is_guest
from nedura.signin.tokens import fingerprint, subject_of
from nedura.text import Secret, clean

__all__ = ["LOCK_TIMEOUT", "HandoffStore", "note_replacement"]

LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for the leaf lock; it is only ever held for one small write."""

NOTE_TIMEOUT: Final = 2.0
"""The same inside a sign-in, which holds the auth locks meanwhile."""

SCHEMA: Final = 1
_NOTE: Final = ".guest_handoff.note."

log = logging.getLogger("nedura.signin.handoff")


class HandoffStore:
    """The records of one profile.

    Args:
        home: the profile's home.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "guest_handoff.json"
        self.lock_path = home / "guest_handoff.lock"
        self.sender_path = home / "guest_handoff.sender.lock"
        """Held by the one run that sends records of this profile, whatever the clocks say."""

    def read(self) -> tuple[Record, ...]:
        """Every record, oldest change first.

        Raises:
            RecordUnreadable, RecordCorrupt, UnsafePath: they cannot be told; never "none".
        """
        return _folded(_records(self._document())[0], [note for _, note in self._notes()])

    def _document(self) -> object:
        try:
            return read_json(self.path)
        except RecordMissing:
            return {"records": []}

    def change(
        self, decide: Callable[[tuple[Record, ...]], tuple[Record, ...]], *, timeout: float = LOCK_TIMEOUT
    ) -> tuple[Record, ...]:
        """Read, decide and write under the lock; nothing is written when nothing changes. Blocks for at most `timeout` seconds.

        Raises:
            LockTimeout, StoreError: the records stay as they were.
        """
        with locked(self.lock_path, timeout, "the hand-off record"):
            drop_temps(self.path)
            document = self._document()
            before, foreign = _records(document)
            notes = self._notes()
            after = pruned(advanced(before, decide(_folded(before, [note for _, note in notes]))))
            if after != before:
                rows = [*(_row(record) for record in after), *foreign]
                write_json(
                    self.path, {"_schema": SCHEMA, "records": rows}, indent=None
                )  # only without it in C
            for path, _ in notes:
                remove(path)
        return after

    def leave_note(self, record: Record) -> None:
        """Keep a record in a file of its own while the leaf lock cannot be had; whoever holds the lock next takes it in.

        Raises:
            StoreError: it cannot be written.
        """
        write_json(self._note_path(record), {"_schema": SCHEMA, "record": _row(record)})

    def has_note(self, record: Record) -> bool:
        """Whether this very replacement is noted aside already: the other seam waited for the lock in vain."""
        return self._note_path(record).exists()

    def _note_path(self, record: Record) -> Path:
        return self.home / f"{_NOTE}{record.id}.{record_id(record.account_sub)[:8]}.json"

    def _notes(self) -> list[tuple[Path, Record]]:
        """What was left beside the records, oldest first; one that cannot be read stays where it is."""
        found = []
        for path in self.home.glob(f"{_NOTE}*.json"):
            try:
                document = read_json(path)
                found.append((path, _record(document["record"])))
            except RecordMissing:  # taken in meanwhile
                continue
            except (StoreError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                log.warning("hand-off note %s: %s", clean(path.name, 80), clean(error, 200))
        return sorted(found, key=lambda pair: pair[1].created_at)

    def set_aside(self) -> Path:
        """Keep damaged records under another name, so that new ones can be written.

        Raises:
            StoreError: they cannot be copied; they stay where they are.
        """
        data = read_bytes(self.path)
        number = next(
            n for n in range(1, 10_000) if not (self.home / f"guest_handoff.json.corrupt.{n}").exists()
        )
        kept = self.home / f"guest_handoff.json.corrupt.{number}"
        write_bytes(kept, data)
        write_json(self.path, {"_schema": SCHEMA, "records": []})
        return kept


def note_replacement(home: Path, *, old: Entry | None, new: Entry | None, now: float) -> bool:
    """Write the pending record when an account is about to take the place of a free-tier identity.

    Called by the two lowest write seams under their own locks and before their write. Sends nothing and never raises: a sign-in
    is worth more than a hand-off. Both seams seeing one replacement make one record.

    Args:
        home: the profile's home.
        old: the entry in place.
        new: the entry that replaces it.
        now: unix seconds.

    Returns:
        Whether a record was written.
    """
    try:
        return _note(home, old, new, now)
    except Exception as error:  # the border that keeps a hand-off from breaking a sign-in
        log.warning("the hand-off could not be noted: %s", clean(error, 200))
        return False


def _note(home: Path, old: Entry | None, new: Entry | None, now: float) -> bool:
    token = old.get("anon_token") if old and is_guest(old) else None
    if not isinstance(token, str) or not token or not new or is_guest(new):
        return False
    account = subject_of(new.get("access_token"))
    new_record = note(
        None,
        token=token,
        portal=_text(old, "portal_base_url"),
        guest=_text(old, "user_id"),
        account=account,
        now=now,
    )
    assert new_record is not None
    written = True

    def decide(records: tuple[Record, ...]) -> tuple[Record, ...]:
        nonlocal written
        after = _folded(records, [new_record])
        written = after != records
        return after

    make_folder(home)
    store = HandoffStore(home)
    if store.has_note(new_record):
        return False
    try:
        try:
            store.change(decide, timeout=NOTE_TIMEOUT)
        except RecordCorrupt:
            log.warning("damaged hand-off records were kept as %s", store.set_aside().name)
            store.change(decide, timeout=NOTE_TIMEOUT)
    except StoreError as error:  # busy, unreadable: the free tier's credential must not go with its entry
        store.leave_note(new_record)
        log.warning("the hand-off is noted aside: %s", error.message)
    if written:
        log.info("hand-off noted: credential %s for account %s", fingerprint(token), fingerprint(account))
    return written


def _folded(records: tuple[Record, ...], notes: Iterable[Record]) -> tuple[Record, ...]:
    """The records with what was noted, by the rule of `note`: each replacement makes one record, whoever wrote it down."""
    for new in notes:
        known = next((record for record in records if record.id == new.id), None)
        if new.token is None:
            continue
        fresh = note(
            known,
            token=new.token.reveal(),
            portal=new.portal_base_url,
            guest=new.guest_user_id,
            account=new.account_sub,
            now=new.created_at,
        )
        if fresh is not None:
            records = (*(record for record in records if record is not known), fresh)
    return records


def _text(entry: Mapping[str, Any] | None, name: str) -> str:
    value = (entry or {}).get(name)
    return value if isinstance(value, str) else ""


_TIMES: Final = ("next_attempt_at", "scheduled_at", "created_at", "updated_at")
_KNOWN: Final = frozenset(field.name for field in attrs.fields(Record)) - {"extra"}


def _row(record: Record) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in sorted(_KNOWN)}
    row |= {name: iso(row[name]) for name in _TIMES}
    row["state"] = record.state.value
    row["token"] = record.token.reveal() if record.token else None
    row["moved"], row["reconnect"] = list(record.moved), list(record.reconnect)
    return {**record.extra, **row}


def _records(document: object) -> tuple[tuple[Record, ...], list[object]]:
    """The records, and the rows that this version cannot read: a newer one's or damaged ones, which are kept as they are."""
    rows = document.get("records") if isinstance(document, Mapping) else None
    if not isinstance(rows, list):
        raise RecordCorrupt("The hand-off record has an unknown shape.")
    records: list[Record] = []
    foreign: list[object] = []
    for row in rows:
        try:
            records.append(_record(row))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            foreign.append(row)
    if foreign:
        log.debug("%d hand-off records of an unknown form are left alone", len(foreign))
    return tuple(records), foreign


def _record(row: Mapping[str, Any]) -> Record:
    token = row.get("token")
    return Record(
        id=str(row["id"]),
        token=Secret(token) if isinstance(token, str) and token else None,
        portal_base_url=_text(row, "portal_base_url"),
        guest_user_id=_text(row, "guest_user_id"),
        account_sub=_text(row, "account_sub"),
        state=State(row["state"]),
        attempts=max(0, int(row["attempts"])),
        **{name: parse_iso(str(row.get(name, ""))) or 0.0 for name in _TIMES},
        moved=tuple(str(name) for name in row.get("moved") or ()),
        reconnect=tuple(str(name) for name in row.get("reconnect") or ()),
        connectors_known=bool(row.get("connectors_known")),
        probably_moved=bool(row.get("probably_moved")),
        cohort_carried=bool(row.get("cohort_carried")),
        renewal_owed=bool(row.get("renewal_owed")),
        last_code=_text(row, "last_code"),
        extra={name: value for name, value in row.items() if name not in _KNOWN},
    )
