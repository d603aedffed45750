"""Earlier runs that never closed their receipt: found, judged and closed by the next run (facts/update.md 10.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from nedura.clock import iso
from nedura.errors import StoreError
from nedura.installs import CodeIdentity
from nedura.update.events import InterruptedFound, UpdateFinished
from nedura.update.ledger.owner import TOLERANCE, Owner, is_alive, myself
from nedura.update.ledger.receipt import is_finished, owed_steps, unreadable
from nedura.update.ledger.receipts import KEEP, ReceiptStore

__all__ = ["close_interrupted", "finish_of", "interruption", "is_abandoned"]


def _code_of(fields: object) -> CodeIdentity:
    """A code identity from what a receipt keeps of it; empty when that is nothing."""
    if not isinstance(fields, Mapping):
        return CodeIdentity()
    return CodeIdentity(
        install_id=str(fields.get("install_id") or ""),
        generation=str(fields.get("generation") or ""),
        code_sha=str(fields.get("sha") or ""),
        code_version=str(fields.get("version") or ""),
        tree_hash=str(fields.get("tree_hash") or ""),
    )


def _owner(receipt: Mapping[str, Any], pid: str, created: str) -> Owner | None:
    try:
        return Owner(int(receipt[pid]), float(receipt.get(created) or 0.0))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def is_abandoned(receipt: Mapping[str, Any], alive: Callable[[Owner], bool] = is_alive) -> bool:
    """Whether a receipt still says `running` although its parent and its writer are both gone."""
    if receipt.get("outcome") != "running":
        return False
    owners = [_owner(receipt, "pid", "pid_create_time"), _owner(receipt, "writer_pid", "writer_create_time")]
    return not any(alive(owner) for owner in owners if owner is not None)


def closed(receipt: Mapping[str, Any], now: str) -> dict[str, Any]:
    """An abandoned receipt, closed: `interrupted`, naming the last stage. Its own times stay."""
    stage = str(receipt.get("stage") or "")
    where = f"in stage {stage}" if stage else "before its first stage"
    moved = " after the commit point" if receipt.get("committed_at") else ""
    return {
        **receipt,
        "outcome": "interrupted",
        "exit_code": None,
        "finished_at": now,
        "interrupted_detected_at": now,
        "stop_reason": f"its processes ended {where}{moved}",
        "stop_class": "interrupted",
    }


def interruption(store: ReceiptStore) -> UpdateFinished:
    """The last event of this process's run, which was stopped before it could be shown: made again from the receipt that it closed.

    That is no interruption when the run had ended and only its last event was not shown. A run that was stopped before it had a receipt
    has no id and names none.
    """
    receipt = store.newest() or {}
    owner, me = _owner(receipt, "pid", "pid_create_time"), myself()
    if owner is None or owner.pid != me.pid or abs(owner.create_time - me.create_time) > TOLERANCE:
        receipt = {}  # the newest is another run's
    if not is_finished(receipt):
        receipt = {}
    code = receipt.get("exit_code")
    ending = finish_of(
        receipt, code if isinstance(code, int) else 130, str(store.path_of(receipt)) if receipt else ""
    )
    return ending if receipt else attrs.evolve(ending, outcome="interrupted", stop_class="interrupted")


def finish_of(receipt: Mapping[str, Any], exit_code: int, place: str) -> UpdateFinished:
    """The last event of a run, made again from its closed receipt."""
    return UpdateFinished(
        run_id=str(receipt.get("update_id", "")),
        outcome=str(receipt.get("outcome", "")),
        exit_code=exit_code,
        finished_at=str(receipt.get("finished_at") or ""),
        stop_reason=str(receipt.get("stop_reason", "")),
        stop_class=str(receipt.get("stop_class") or ""),
        followups=tuple(owed_steps(receipt)),
        receipt=place,
        changed=bool(receipt.get("committed_at")),
        now=_code_of(receipt.get("post_update") or receipt.get("pre_update")),
        unreadable=unreadable(receipt),
        went_behind=str(receipt.get("went_behind") or ""),
        restored=str(receipt.get("restored") or ""),
    )


def close_interrupted(
    store: ReceiptStore, now: float, alive: Callable[[Owner], bool] = is_alive
) -> Iterator[InterruptedFound]:
    """Close every abandoned receipt of the last 20, newest first; what cannot be written is left for the next run.

    Args:
        store: the receipts.
        now: unix seconds.
        alive: seam.
    """
    newest = store.newest()
    for place, receipt in store.entries()[:KEEP]:
        if not is_abandoned(receipt, alive):
            continue
        is_newest = newest is not None and newest.get("update_id") == receipt.get("update_id")
        try:
            store.write(closed(receipt, iso(now)), latest=is_newest, place=place)
        except (StoreError, KeyError, ValueError):
            continue
        yield InterruptedFound(
            run_id=str(receipt.get("update_id", "")),
            last_stage=str(receipt.get("stage") or ""),
            receipt=str(place),
        )
