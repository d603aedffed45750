"""Fingerprints of refresh tokens that were sent: on disk before a token leaves, so that no process of this root sends it again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.clock import iso
from nedura.errors import RecordCorrupt, RecordMissing
from nedura.records import make_folder, read_json, write_json
from nedura.signin.tokens import fingerprint

__all__ = ["SpentTokens"]

KEPT: Final = 1024
"""Newest fingerprints that are kept: ten accounts for a day."""

log = logging.getLogger("nedura.signin")


class SpentTokens:
    """The list beside the shared store. Every call is made under the shared lock.

    Args:
        folder: the shared store's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nous_spent.json"

    def read(self) -> tuple[str, ...]:
        """Fingerprints, oldest first.

        Raises:
            StoreError: they cannot be read; nobody may then take a token for unspent.
        """
        return tuple(self._rows())

    def add(self, token: str, now: float) -> None:
        """Put a token on the list, durably.

        Raises:
            StoreError: it could not be written; the token must not leave.
        """
        rows = self._rows() | {fingerprint(token): iso(now)}
        self._write(dict(list(rows.items())[-KEPT:]))

    def discard(self, token: str) -> None:
        """Take a token off the list: it is certain that the server did not redeem it.

        Raises:
            StoreError: it could not be written; the token then counts as spent.
        """
        rows = self._rows()
        if rows.pop(fingerprint(token), None) is not None:
            self._write(rows)

    def _rows(self) -> dict[str, str]:
        try:
            document = read_json(self.path)
        except RecordMissing:
            return {}
        rows = document.get("spent") if isinstance(document, Mapping) else None
        if not isinstance(rows, Mapping):
            raise RecordCorrupt(
                "The list of spent tokens has an unknown shape.", advice=f"Move {self.path} away."
            )
        return {str(name): str(at) for name, at in rows.items()}

    def _write(self, rows: Mapping[str, str]) -> None:
        make_folder(self.path.parent)
        write_json(self.path, {"_schema": 1, "spent": dict(rows)})
