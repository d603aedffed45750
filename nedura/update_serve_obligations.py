"""Frozen compat surface: reminders of hand-started serve and dashboard backends that still run old code (facts/update.md 8.5 C).

Older releases import these names from the NEW tree after the checkout moved under them; inside such an update the old process is
stopped and a fresh interpreter finishes. Elsewhere they do what they say. Standard library only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nedura import _old_updater

__all__ = [
    "defer_manual_serve",
    "record_respawn_failure",
    "retain_receipt_manual_serves",
    "warn_pending_manual_serves",
]

log = logging.getLogger("nedura.update")


def _folder() -> Path:
    from nedura.homes import process_home, root_home

    return root_home(process_home()) / "serve_restart_pending"


def _stop_old_update() -> None:
    """An update that is under way in the calling frames belongs to older code: it must not go on here."""
    if _old_updater.old_run() is not None:
        _old_updater.stop_for_relaunch()


def _field(runtime: Any, name: str, default: Any = None) -> Any:
    return runtime.get(name, default) if isinstance(runtime, Mapping) else getattr(runtime, name, default)


def _lives(pid: int, created: float) -> bool:
    from nedura.update.ledger.owner import Owner, is_alive

    return is_alive(Owner(pid, created))


def _records() -> Iterator[tuple[Path, dict[str, Any]]]:
    from nedura.errors import StoreError
    from nedura.records import read_json

    try:
        names = sorted(os.listdir(_folder()))
    except OSError:
        return
    for name in names:
        if not name.endswith(".json") or name.startswith("."):
            continue
        try:
            value = read_json(_folder() / name)
        except StoreError as error:
            log.warning("a serve reminder cannot be read: %s", error.message)
            continue
        if isinstance(value, dict):
            yield _folder() / name, value


def defer_manual_serve(runtime: Any, *, require_alive: bool = False) -> bool:
    """Remember that a hand-started backend still owes its restart; whether it is remembered.

    Args:
        runtime: `kind`, `profile`, `pid`, `create_time`, as a mapping or an object.
        require_alive: remember nothing when that very process is gone.
    """
    _stop_old_update()
    from nedura.errors import StoreError
    from nedura.records import make_folder, write_json

    pid, created = int(_field(runtime, "pid", 0) or 0), float(_field(runtime, "create_time", 0.0) or 0.0)
    if pid <= 0 or (require_alive and not _lives(pid, created)):
        return False
    record = {
        "kind": str(_field(runtime, "kind", "serve")),
        "profile": str(_field(runtime, "profile", "default")),
        "pid": pid,
        "create_time": created,
    }
    try:
        write_json(make_folder(_folder()) / f"{pid}-{created.hex()}.json", record)
    except StoreError as error:
        log.warning("a serve reminder cannot be kept: %s", error.message)
        return False
    return True


def record_respawn_failure(pid: int) -> bool:
    """Note that a backend could not be started again; whether one of that pid is remembered."""
    _stop_old_update()
    from nedura.records import write_json

    noted = False
    for path, record in _records():
        if record.get("pid") == pid:
            write_json(path, {**record, "respawn_failed": True})
            noted = True
    return noted


def retain_receipt_manual_serves(receipt: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Remember every backend that a receipt carries because it could not be saved before; those that still cannot come back."""
    _stop_old_update()
    rows = receipt.get("pending_manual_serves") or receipt.get("carried_manual_serves") or ()
    return [
        dict(row)
        for row in rows
        if isinstance(row, Mapping) and not defer_manual_serve(row, require_alive=True)
    ]


def warn_pending_manual_serves(*, startup: bool = False, pending_manual: Any = None) -> list[str]:
    """Lines about backends that still run old code; reminders of processes that are gone are removed.

    Args:
        startup: at a start the lines are for stderr and say how to restart.
        pending_manual: rows that are not on disk.
    """
    _stop_old_update()
    from nedura.records import remove

    lines = []
    for path, record in _records():
        pid = int(record.get("pid") or 0)
        if not _lives(pid, float(record.get("create_time") or 0.0)):
            remove(path)
            continue
        lines.append(_line(record, startup))
    lines.extend(_line(row, startup) for row in pending_manual or () if isinstance(row, Mapping))
    return lines


def _line(record: Mapping[str, Any], startup: bool) -> str:
    what = f"{record.get('kind', 'serve')} of profile {record.get('profile', 'default')} (process {record.get('pid')})"
    state = (
        "could not be started again"
        if record.get("respawn_failed")
        else "still runs the version before the update"
    )
    return f"{what} {state}." + (" Restart it by hand." if startup else "")
