"""The one writer of a run's record: every event goes through it once, into the receipt, `update.log` and back to the caller."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Final

from nedura.clock import Clock, iso
from nedura.errors import StoreError
from nedura.records import append_line, make_folder
from nedura.text import redact
from nedura.update.events import Notice
from nedura.update.ledger.masks import masked_record
from nedura.update.ledger.receipt import Receipt, is_finished, newer_of, opened
from nedura.update.ledger.receipt_shape import agreed, apply_fitting
from nedura.update.ledger.receipts import ReceiptStore
from nedura.wire import Event, to_wire

__all__ = ["BOUNDARIES", "LOG_BYTES", "Journal"]

log = logging.getLogger("nedura.update")

BOUNDARIES: Final = frozenset(
    {
        "update_started", "writer_changed", "stage_started", "stage_finished", "plan_ready", "committed", "taken_back",
        "follow_up", "user_action", "matrix", "update_finished",
    }
)  # fmt: skip
"""Kinds after which the receipt is written: the start, each stage boundary, and whatever must not be forgotten."""


LOG_BYTES: Final = 1 << 20
"""Size at which `update.log` becomes `update.log.1`, in the place of the one before: some two hundred updates each."""


class Journal:
    """Receipt and log of one run in one process.

    Args:
        root_home: where logs and receipts live.
        clock: stamps records.
        receipt: state to go on from (the completion child resumes the parent's).
        writes: False while the other half of the run is the writer; folding goes on.
    """

    def __init__(
        self, root_home: Path, clock: Clock, *, receipt: Receipt | None = None, writes: bool = True
    ) -> None:
        self.store = ReceiptStore(root_home)
        self.log_file = root_home / "logs" / "update.log"
        self.clock = clock
        self.receipt: Receipt = opened() if receipt is None else receipt
        self.writes = writes
        self.latest = True
        self.path: Path | None = None
        self.failure = ""

    @property
    def receipt_path(self) -> str:
        """Where the receipt is, empty when it was never written."""
        return str(self.path) if self.path is not None else ""

    def take(self, event: Event) -> dict[str, Any]:
        """Fold, log and, at a boundary, write. Returns the record (wire form with `at`, masked).

        A refused write never ends the run: it is remembered in `failure` and warned about.
        """
        return self.take_record({**to_wire(event), "at": iso(self.clock.time())})

    def take_record(self, record: dict[str, Any]) -> dict[str, Any]:
        """`take` of a record that the other half of the run stamped; masked before anything is kept of it."""
        record = masked_record(record)
        self.receipt = apply_fitting(self.receipt, record)
        self._log(record)
        if self.writes and record.get("kind") in BOUNDARIES:
            self.write()
        return record

    def resume(self) -> None:
        """Become the writer again, from whichever state has seen more: ours or the one the other half left on disk."""
        self.writes = True
        try:
            left = self.store.read(self.store.path_of(self.receipt))
        except (StoreError, KeyError):
            return
        self.receipt = newer_of(self.receipt, agreed(masked_record(left), self.receipt))

    @property
    def finished(self) -> bool:
        """Whether the receipt is closed."""
        return is_finished(self.receipt)

    def write(self) -> None:
        """Put the receipt on disk as it stands."""
        try:
            self.path = self.store.write(self.receipt, latest=self.latest)
            self.failure = ""
        except StoreError as error:
            self.failure = error.message
            log.warning("the update receipt cannot be written: %s", error.message)

    def warning(self) -> Notice | None:
        """What to show when the last write was refused."""
        if not self.failure:
            return None
        return Notice(text=f"The receipt of this update could not be written: {self.failure}", warning=True)

    def note(self, text: str) -> None:
        """A line of somebody else's output for `update.log`."""
        self._append(iso(self.clock.time()), f"| {text}")

    def _log(self, record: dict[str, Any]) -> None:
        """One record, one line: time, terminal copy; kinds without copy are left out. Only the writer logs."""
        if not self.writes:
            return
        text = str(record.get("copy_terminal") or "").strip()
        if not text:
            return
        self._append(str(record.get("at", "")), text)

    def _append(self, at: str, text: str) -> None:
        line = f"{at} {self.receipt.get('update_id', '')[:8]} {json.dumps(text, ensure_ascii=False)[1:-1]}"
        try:
            make_folder(self.log_file.parent)
            self._rotate()
            append_line(self.log_file, redact(line))
        except StoreError as error:
            log.debug("update.log: %s", error.message)

    def _rotate(self) -> None:
        """Both halves of a run, and a run that is refused beside it, open the file for each line: a rename loses nobody's."""
        try:
            if os.lstat(self.log_file).st_size >= LOG_BYTES:
                os.replace(self.log_file, self.log_file.with_name("update.log.1"))
        except FileNotFoundError:  # the first line, or another process was faster
            pass
        except OSError as error:
            log.debug("update.log stays as it is: %s", error)
