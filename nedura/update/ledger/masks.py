"""What a run tells, without what looks like a credential: git, pip and build tools quote the addresses and environments they were given.

Every event passes here once on its way out of `update()`, every record on its way into the receipt and over the pipe of the completion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import attrs

from nedura.text import redact, redact_words

__all__ = ["masked_event", "masked_record", "masked_whole"]

T = TypeVar("T")
MASK: Final = "[redacted]"
DEEPEST: Final = 16
_SECRET_KEY: Final = re.compile(
    r"(?i)(?:token|secret|password|passwd|passphrase|api[_-]?key|authorization|private[_-]?key|access[_-]?key|credentials?)$"
)


def masked_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A decoded record with every text in it masked, at any depth; also the value of a key that is named like a secret.

    Numbers that JSON does not have (NaN, infinity) are left out.
    """
    return {key: _masked_item(str(key), value) for key, value in record.items()}


def masked_event(event: T) -> T:
    """The same event, or, where a text in it looks like a credential, one with that text masked."""
    return _masked(event)  # type: ignore[no-any-return]


def _masked_item(key: str, value: Any, depth: int = 0) -> Any:
    return masked_whole(value) if _SECRET_KEY.search(key) else _masked(value, depth)


def masked_whole(value: Any, depth: int = 0) -> Any:
    """What stands under a key that is named like a secret: every text in it is one."""
    match value:
        case str() if value:
            return MASK
        case Mapping() if depth <= DEEPEST:
            return {key: masked_whole(item, depth + 1) for key, item in value.items()}
        case list() | tuple() if depth <= DEEPEST:
            return [masked_whole(item, depth + 1) for item in value]
        case _:
            return _masked(value, depth)


def _masked(value: Any, depth: int = 0) -> Any:
    """A value of the same type; the very object where nothing had to change."""
    if depth > DEEPEST:
        return None
    match value:
        case str():
            return redact(value)
        case float() if not math.isfinite(value):
            return None  # no JSON: every other reader of the file would refuse it whole
        case Mapping():
            found = {key: _masked_item(str(key), item, depth + 1) for key, item in value.items()}
            return found if any(found[key] is not value[key] for key in found) else value
        case list() | tuple():
            if value and all(isinstance(item, str) for item in value):
                items: list[Any] = redact_words(value)  # it may be a command line
            else:
                items = [_masked(item, depth + 1) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            if isinstance(value, list):
                return items
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        case _ if attrs.has(type(value)):
            return _masked_fields(value, depth)
        case _:
            return value


def _masked_fields(value: Any, depth: int) -> Any:
    changed = {}
    for field in attrs.fields(type(value)):
        old = getattr(value, field.name)
        new = _masked(old, depth + 1)
        if new is not old and field.init:
            changed[field.alias or field.name] = new
    return attrs.evolve(value, **changed) if changed else value
