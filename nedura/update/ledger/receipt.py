"""The receipt: a pure fold over the wire events of a run (architecture.md rule 2, facts/update.md 9.2).

`reduce(apply, records, opened())` is the receipt. A record is an event's wire form with `at` (ISO UTC) added by the process that
took it. No IO, no clock: what the user saw and what the receipt says are the same stream. The standard library alone, since the frozen
takeover opens one under `-S`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from nedura.text import one_line, redact

__all__ = [
    "KEPT_FOREIGN",
    "SCHEMA",
    "Receipt",
    "apply",
    "is_finished",
    "newer_of",
    "opened",
    "owed_steps",
    "shed_more",
    "unreadable",
]

SCHEMA: Final = 1
KEPT_FOREIGN: Final = 200
"""How many events of unknown kinds a receipt keeps verbatim; the rest is counted."""
KEPT_FOLLOWUPS: Final = 500
"""How many follow-ups a receipt names; it is written at each of them."""

Receipt = dict[str, Any]
Record = Mapping[str, Any]

_PASSING: Final = frozenset(
    {
        "progress",
        "notice",
        "completion_started",
        "already_reported",
        "drain_waiting",
        "restart_waiting",
        "settle_waiting",
        "verify_waiting",
        "restart_started",
        "error",
    }
)
"""Kinds that are shown and logged but change no receipt."""


def opened() -> Receipt:
    """The receipt before its first event."""
    return {
        "schema": SCHEMA,
        "update_id": "",
        "correlation_id": None,
        "action_id": None,
        "started_at": "",
        "finished_at": None,
        "argv": [],
        "pid": 0,
        "pid_create_time": 0.0,
        "initiator": "cli",
        "install_id": "",
        "layout": "",
        "outcome": "running",
        "exit_code": None,
        "stop_reason": "",
        "stop_class": "",
        "stage": "",
        "pre_update": None,
        "post_update": None,
        "plan": None,
        "steps": [],
        "skips": [],
        "stages": [],
        "snapshots": {},
        "snapshots_missing": {},
        "followups": [],
        "user_action": None,
        "gateway_restart": _no_restart(),
        "runtime_outcomes": [],
        "fleet": [],
        "fleet_unreadable": 0,
        "foreign": [],
        "foreign_dropped": 0,
        "interrupted_detected_at": None,
        "seq": 0,
    }


def _no_restart() -> dict[str, Any]:
    return {
        "restarted": [],
        "failed": [],
        "left_alone": [],
        "pending": [],
        "incomplete": False,
        "phase_error": "",
    }


def apply(receipt: Receipt, record: Record) -> Receipt:
    """The receipt after one more event. Never changes its arguments, never raises on a shape it does not know."""
    kind = str(record.get("kind", ""))
    if kind in _PASSING:
        return receipt
    step = _STEPS.get(kind, _foreign)
    return {**receipt, **step(receipt, record), "seq": int(receipt.get("seq") or 0) + 1}


def is_finished(receipt: Record) -> bool:
    """Whether a receipt is closed. Only the outcome field decides, never a stop text (C101)."""
    at = receipt.get("finished_at")
    return (
        receipt.get("outcome") in ("success", "partial", "failed", "refused", "interrupted")
        and isinstance(at, str)
        and bool(at)
    )


def owed_steps(receipt: Record) -> list[str]:
    """Names of the follow-ups a receipt holds, in order, each once."""
    rows = receipt.get("followups")
    if not isinstance(rows, list | tuple):
        return []
    return list(dict.fromkeys(str(row.get("step", "")) for row in rows if isinstance(row, Mapping)))


def newer_of(mine: Receipt, other: Receipt | None) -> Receipt:
    """Of two states of the same run the one that has seen more events."""
    if other is None or other.get("update_id") != mine.get("update_id"):
        return mine
    return other if int(other.get("seq") or 0) > int(mine.get("seq") or 0) else mine


def code_fields(code: object) -> dict[str, Any] | None:
    """A code identity as receipts keep it."""
    if not isinstance(code, Mapping):
        return None
    sha = str(code.get("code_sha", ""))
    return {
        "sha": sha,
        "short_sha": sha[:8],
        "version": str(code.get("code_version", "")),
        "install_id": str(code.get("install_id", "")),
        "generation": str(code.get("generation", "")),
        "tree_hash": str(code.get("tree_hash", "")),
    }


def _reason(value: object) -> str:
    """Why something is so, in one line, without what looks like a credential: git and pip quote what they were given."""
    return redact(one_line(value))


def _started(receipt: Receipt, record: Record) -> Receipt:
    same = (
        "started_at", "install_id", "layout", "pid", "pid_create_time", "argv", "initiator", "correlation_id", "action_id",
    )  # fmt: skip
    return {
        **{key: record[key] for key in same if key in record},
        "update_id": record.get("run_id", ""),
        "pre_update": code_fields(record.get("pre_update")),
    }


def _writer(receipt: Receipt, record: Record) -> Receipt:
    return {"writer_pid": record.get("pid"), "writer_create_time": record.get("create_time")}


def _stage_started(receipt: Receipt, record: Record) -> Receipt:
    return {"stage": str(record.get("stage", ""))}


def _stage_finished(receipt: Receipt, record: Record) -> Receipt:
    facts = record.get("facts")
    row = {
        **(facts if isinstance(facts, Mapping) else {}),
        "name": str(record.get("stage", "")),
        "outcome": str(record.get("outcome", "success")),
        "at": record.get("at", ""),
        "seconds": record.get("seconds", 0.0),
    }
    if record.get("reason"):
        row["reason"] = _reason(record["reason"])
    return {"stages": [*receipt["stages"], row]}


def _step(receipt: Receipt, record: Record) -> Receipt:
    row = {
        "name": record.get("name", ""),
        "ok": bool(record.get("ok", True)),
        "detail": _reason(record.get("detail")),
    }
    return {"steps": [*receipt["steps"], {**row, "at": record.get("at", "")}]}


def _skipped(receipt: Receipt, record: Record) -> Receipt:
    row = {
        "name": record.get("name", ""),
        "reason": _reason(record.get("reason")),
        "at": record.get("at", ""),
    }
    return {"skips": [*receipt["skips"], row]}


def _plan(receipt: Receipt, record: Record) -> Receipt:
    return {"plan": record.get("plan")}


def _snapshot(receipt: Receipt, record: Record) -> Receipt:
    """The snapshot of a profile, and what it lacks of that profile (C019)."""
    profile = str(record.get("profile", ""))
    taken = {"snapshots": {**receipt["snapshots"], profile: record.get("snapshot_id", "")}}
    missing = [str(path) for path in record.get("incomplete") or ()]
    if not missing:
        return taken
    known = receipt.get("snapshots_missing") or {}  # a receipt that an older version opened has none
    return {**taken, "snapshots_missing": {**known, profile: missing}}


def _committed(receipt: Receipt, record: Record) -> Receipt:
    return {"post_update": code_fields(record.get("now")), "committed_at": record.get("at", "")}


def _taken_back(receipt: Receipt, record: Record) -> Receipt:
    step = {
        "name": "take_back",
        "ok": bool(record.get("restored", True)),
        "detail": _reason(record.get("check")),
    }
    return {
        "post_update": code_fields(record.get("now")),
        "committed_at": None,
        "steps": [*receipt["steps"], {**step, "at": record.get("at", "")}],
    }


def _followup(receipt: Receipt, record: Record) -> Receipt:
    row = {
        "step": str(record.get("step", "")),
        "reason": _reason(record.get("reason")),
        "at": record.get("at", ""),
    }
    others = [
        old
        for old in receipt["followups"]
        if old.get("step") != row["step"] or old.get("reason") != row["reason"]
    ]
    if len(others) >= KEPT_FOLLOWUPS:
        return {"shed": shed_more(receipt, "followups", 1)}
    return {"followups": [*others, row]}


def shed_more(receipt: Record, key: str, count: int) -> dict[str, int]:
    """What a receipt had to let go, with some more items of one key."""
    old = receipt.get("shed")
    known = (
        {str(name): n for name, n in old.items() if isinstance(n, int)} if isinstance(old, Mapping) else {}
    )
    return {**known, key: known.get(key, 0) + count}


def _user_action(receipt: Receipt, record: Record) -> Receipt:
    return {"user_action": {"step": record.get("step", ""), "reason": _reason(record.get("reason"))}}


def _matrix(receipt: Receipt, record: Record) -> Receipt:
    """The last look at the fleet, and how many things in it could not be read (case C194)."""
    rows, foreign = record.get("rows"), record.get("foreign")
    unread = [one for one in foreign if _unread(one)] if isinstance(foreign, list | tuple) else []
    return {
        "fleet": list(rows) if isinstance(rows, list | tuple) else [],
        "fleet_unreadable": len(unread),
    }


def _unread(item: object) -> bool:
    return (
        isinstance(item, Mapping)
        and not item.get("home")
        and item.get("reason") in ("home unreadable", "another user")
    )


def unreadable(receipt: Record) -> int:
    """How many things in the last look at the fleet could not be read."""
    count = receipt.get("fleet_unreadable")
    return count if isinstance(count, int) else 0


def _member(bucket: str) -> Callable[[Receipt, Record], Receipt]:
    def fold(receipt: Receipt, record: Record) -> Receipt:
        row = {key: value for key, value in record.items() if key not in ("kind", "copy", "copy_terminal")}
        restart = receipt["gateway_restart"]
        incomplete = restart["incomplete"] or bucket == "failed"
        return {"gateway_restart": {**restart, bucket: [*restart[bucket], row], "incomplete": incomplete}}

    return fold


def _outcomes(receipt: Receipt, record: Record) -> Receipt:
    return {"runtime_outcomes": list(record.get("rows") or ())}


def _sections(receipt: Receipt, record: Record) -> Receipt:
    """PM's own sections, filed under this update (`pm_refusal`, `pm_steps`, ...)."""
    sections = record.get("sections")
    if not isinstance(sections, Mapping):
        return {}
    return {str(key): value for key, value in sections.items() if str(key).startswith("pm_")}


def _finished(receipt: Receipt, record: Record) -> Receipt:
    outcome, exit_code = str(record.get("outcome", "failed")), record.get("exit_code")
    if outcome == "success" and receipt.get("user_action"):
        outcome, exit_code = (
            "partial",
            1,
        )  # what only the user can finish is never a plain success (facts/update.md 9.2)
    now = code_fields(record.get("now"))
    behind = str(record.get("went_behind") or "")
    return {
        **({"went_behind": behind, "restored": _reason(record.get("restored"))} if behind else {}),
        "outcome": outcome,
        "exit_code": exit_code,
        "finished_at": record.get("finished_at") or record.get("at", ""),
        "stop_reason": _reason(record.get("stop_reason")),
        "stop_class": str(record.get("stop_class", "")),
        "post_update": now if now and (now["sha"] or now["version"]) else receipt["post_update"],
    }


def _foreign(receipt: Receipt, record: Record) -> Receipt:
    if len(receipt["foreign"]) >= KEPT_FOREIGN:
        return {"foreign_dropped": receipt["foreign_dropped"] + 1}
    return {"foreign": [*receipt["foreign"], dict(record)]}


_STEPS: Final[Mapping[str, Callable[[Receipt, Record], Receipt]]] = {
    "update_started": _started,
    "writer_changed": _writer,
    "stage_started": _stage_started,
    "stage_finished": _stage_finished,
    "step": _step,
    "skipped": _skipped,
    "plan_ready": _plan,
    "snapshot_taken": _snapshot,
    "prepared": lambda receipt, record: {"changed": bool(record.get("changed"))},
    "interrupted_found": lambda receipt, record: {"finishes": record.get("run_id")},
    "committed": _committed,
    "taken_back": _taken_back,
    "follow_up": _followup,
    "user_action": _user_action,
    "matrix": _matrix,
    "member_restarted": _member("restarted"),
    "member_failed": _member("failed"),
    "left_alone": _member("left_alone"),
    "restart_pending": _member("pending"),
    "runtime_outcomes": _outcomes,
    "package_report": _sections,
    "update_finished": _finished,
}
"""Kind -> what it changes. Everything else is kept verbatim under `foreign`."""
