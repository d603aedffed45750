"""Messages that were taken from a platform and are not answered yet. On disk before the platform may forget them, so that a drain,
a restart or a crash neither drops one nor works on one twice.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordMissing, StoreError
from nedura.records import read_json, write_json
from nedura_gateway.adapters import Inbound

__all__ = ["INBOX_NAME", "Inbox", "Pending"]

INBOX_NAME: Final = "gateway_inbox.json"
KEPT_IDS: Final = 2000
MAX_TRIES: Final = 2
"""A message that was begun this often without an end is given up: it may be what ends the process."""

logger = logging.getLogger(__name__)


@attrs.define
class Pending:
    """A message and how often work on it was begun."""

    message: Inbound
    tries: int = 0

    @property
    def hopeless(self) -> bool:
        """Whether it was tried often enough."""
        return self.tries >= MAX_TRIES


class Inbox:
    """The inbox of one home. Blocking: async code calls it in a thread.

    Args:
        home: the home; only the holder of its claim may open its inbox.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / INBOX_NAME
        self._pending: OrderedDict[str, Pending] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._load()

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What waits, oldest first."""
        return tuple(self._pending.values())

    def accept(self, message: Inbound) -> bool:
        """Store a message durably; False when its id is known already.

        Raises:
            StoreError: it cannot be stored; the platform must keep it.
        """
        key = _key(message)
        if key in self._seen:
            return False
        self._pending[key] = Pending(message)
        self._seen[key] = None
        while len(self._seen) > KEPT_IDS:
            self._seen.popitem(last=False)
        try:
            self._save()
        except StoreError:
            del self._pending[key], self._seen[key]
            raise
        return True

    def begin(self, message: Inbound) -> None:
        """Count a try before work begins.

        Raises:
            StoreError: it cannot be stored.
        """
        self._pending[_key(message)].tries += 1
        self._save()

    def finish(self, message: Inbound) -> None:
        """Forget an answered message; its id stays known.

        Raises:
            StoreError: it cannot be stored.
        """
        if self._pending.pop(_key(message), None) is not None:
            self._save()

    def _load(self) -> None:
        try:
            record = read_json(self._path, 8 * 1024 * 1024)
        except RecordMissing:
            return
        if not isinstance(record, dict):
            raise StoreError(f"{INBOX_NAME} is not an object.", advice="Move it away.")
        for row in record.get("pending", ()):
            message = _parse(row)
            if message is not None:
                self._pending[_key(message)] = Pending(message, int(row.get("tries") or 0))
        self._seen.update((str(key), None) for key in record.get("seen", ()))

    def _save(self) -> None:
        rows = [{**attrs.asdict(item.message), "tries": item.tries} for item in self._pending.values()]
        write_json(self._path, {"version": 1, "pending": rows, "seen": list(self._seen)}, indent=None)


def _key(message: Inbound) -> str:
    return f"{message.adapter}:{message.id}"


def _parse(row: Any) -> Inbound | None:
    """A stored message; one of an older version has no sender."""
    names = ("adapter", "id", "chat", "text")
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in names):
        return None
    user = row.get("user")
    return Inbound(
        **{name: row[name] for name in names},
        user=user if isinstance(user, str) else "",
        private=row.get("private") is True,
    )
