"""The shape of a receipt (docs/schemas/receipt.json) as checks: what another process brings counts only where it fits.

A completion is newer code, or a broken one. A key of its receipt that has another shape than the schema's is left to our own fold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nedura.update.ledger.receipt import KEPT_FOREIGN, SCHEMA, Receipt, apply, opened

__all__ = ["agreed", "apply_fitting"]

Check = Callable[[Any], bool]
LONGEST_REASON: Final = 500


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _reason(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_REASON


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _object(**fields: Check) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            name in value and fits(value[name]) for name, fits in fields.items()
        )

    return check


def _map_of(item: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(item, value.values()))


class _Rows:
    """A list whose items fit a check."""

    def __init__(self, item: Check, longest: int | None = None) -> None:
        self.item = item
        self._longest = longest

    def __call__(self, value: Any) -> bool:
        fits = isinstance(value, list | tuple) and all(map(self.item, value))
        return fits and (self._longest is None or len(value) <= self._longest)


_CODE: Final = _object(sha=_text, short_sha=_text, version=_text)
_MEMBERS: Final = _Rows(_object(profile=_text, pid=_count))
_SHAPES: Final[Mapping[str, Check]] = {
    "schema": lambda value: _count(value) and value == SCHEMA,
    **dict.fromkeys(
        ("update_id", "started_at", "initiator", "install_id", "layout", "outcome", "stop_reason", "stop_class", "stage",
         "finishes", "went_behind", "restored"),
        _text,
    ),
    **dict.fromkeys(
        ("correlation_id", "action_id", "finished_at", "committed_at", "interrupted_detected_at"), _or_none(_text)
    ),
    **dict.fromkeys(("pid", "seq", "fleet_unreadable", "foreign_dropped"), _count),
    **dict.fromkeys(("exit_code", "writer_pid"), _or_none(_count)),
    "pid_create_time": _number,
    "writer_create_time": _or_none(_number),
    "changed": _flag,
    "argv": _Rows(_text),
    "plan": _or_none(_object()),
    "pre_update": _or_none(_CODE),
    "post_update": _or_none(_CODE),
    "snapshots": _map_of(_text),
    "snapshots_missing": _map_of(_Rows(_text)),
    "steps": _Rows(_object(name=_text, ok=_flag, detail=_text, at=_text)),
    "skips": _Rows(_object(name=_text, reason=_text, at=_text)),
    "stages": _Rows(_object(name=_text, outcome=lambda value: value in ("success", "failed", "skipped"), at=_text)),
    "followups": _Rows(_object(step=_text, reason=_reason, at=_text)),
    "user_action": _or_none(_object(step=_text, reason=_text)),
    "gateway_restart": _object(
        restarted=_MEMBERS, failed=_MEMBERS, pending=_MEMBERS, left_alone=_Rows(_object()), incomplete=_flag
    ),
    "runtime_outcomes": _Rows(_object()),
    "fleet": _Rows(_object(profile=_text, state=_text)),
    "foreign": _Rows(_object(), KEPT_FOREIGN),
    "shed": _map_of(_count),
}  # fmt: skip


def agreed(theirs: Mapping[str, Any], mine: Receipt) -> Receipt:
    """A receipt of another process, its keys of another shape replaced by ours; keys of later versions stay."""
    known = {**opened(), **mine}
    found = {**opened(), **theirs}
    for key, fits in _SHAPES.items():
        if key in found and not fits(found[key]):
            if key in known:
                found[key] = known[key]
            else:
                del found[key]
    return found


def apply_fitting(receipt: Receipt, record: Mapping[str, Any]) -> Receipt:
    """`apply`, but a key that would lose its shape by the record stays as it is."""
    found = apply(receipt, record)
    for key, fits in _SHAPES.items():
        old, new = receipt.get(key), found.get(key)
        if new is not old and key in found and not _still_fits(fits, old, new):
            if key in receipt:
                found[key] = old
            else:
                del found[key]
    return found


def _still_fits(fits: Check, old: Any, new: Any) -> bool:
    """Whether a changed value fits; of a list that grew by one only the new item is looked at: a flood must stay cheap."""
    grew = isinstance(fits, _Rows) and isinstance(old, Sequence) and isinstance(new, Sequence)
    if grew and isinstance(fits, _Rows) and len(new) == len(old) + 1:
        return fits.item(new[-1])
    return fits(new)
