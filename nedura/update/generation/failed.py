"""Generations that failed are remembered by what they were made from, and not tried again until that changes (decision 34)."""

from __future__ import annotations

import os
from typing import Any, Final

from nedura.clock import iso
from nedura.errors import RecordCorrupt, RecordMissing, UpdateError
from nedura.installs import InstallPaths
from nedura.records import read_json, write_json
from nedura.text import clean

__all__ = ["check_not_failed", "forget_failed", "remember_failed"]

KEEP: Final = 20


def _read(paths: InstallPaths) -> dict[str, Any]:
    try:
        record = read_json(paths.folder / "failed.json")
    except RecordMissing:
        return {}
    if not isinstance(record, dict):
        raise RecordCorrupt("failed.json makes no sense.")
    return record


def _read_or_begin(paths: InstallPaths) -> dict[str, Any]:
    """The record to write into; what makes no sense is kept beside it, so that it hides no failure that happens now."""
    try:
        return _read(paths)
    except RecordCorrupt:
        place = paths.folder / "failed.json"
        os.replace(place, place.with_name("failed.json.corrupt"))
        return {}


def remember_failed(paths: InstallPaths, inputs: str, reason: str, now: float) -> None:
    """Keep the inputs of a generation that failed.

    Args:
        paths: the install.
        inputs: hash of its inputs.
        reason: what failed.
        now: unix seconds.

    Raises:
        StoreError: it cannot be written.
    """
    if not inputs:
        return
    record = _read_or_begin(paths)
    record.pop(inputs, None)
    record[inputs] = {"reason": clean(reason, 300), "at": iso(now)}
    write_json(paths.folder / "failed.json", dict(list(record.items())[-KEEP:]))


def forget_failed(paths: InstallPaths, inputs: str) -> None:
    """A generation that works after all.

    Raises:
        StoreError: it cannot be written.
    """
    record = _read_or_begin(paths)
    if record.pop(inputs, None) is not None:
        write_json(paths.folder / "failed.json", record)


def check_not_failed(paths: InstallPaths, inputs: str, *, retry: bool) -> None:
    """Refuse inputs that failed before.

    Raises:
        UpdateError: they did, and `retry` was not asked.
        StoreError: the record cannot be read.
    """
    try:
        found = _read(paths).get(inputs)
    except RecordCorrupt as error:
        if retry:
            return
        raise RecordCorrupt(
            f"What failed here before cannot be read: {error.message}",
            advice="Update with --retry: it tries any version again and begins a new record.",
        ) from error
    if found is None or retry:
        return
    reason = clean(found.get("reason"), 200) if isinstance(found, dict) else "unknown"
    raise UpdateError(
        f"This very version failed here before ({reason}), and nothing it is made from has changed.",
        stop_class="failed_before",
        advice="Try it again with --retry, or wait for the next version.",
    )
