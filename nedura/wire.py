"""Events and their one wire form.

An event is a frozen, keyword-only attrs class with a class attribute `kind` that owns its `copy` (chat form: no URL, no exception
text, no terminal verb) and its `copy_terminal`. No renderer maps a reason to a string. `--json` prints the wire form, one event a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

import attrs

from nedura.text import Secret, clean, clean_block

__all__ = ["Event", "ForeignEvent", "from_wire", "to_json_line", "to_wire"]

MAX_LINE = 64 * 1024
"""Longest wire line in bytes that a reader accepts."""


@runtime_checkable
class Event(Protocol):
    """What every state and event offers."""

    @property
    def kind(self) -> str:
        """Closed token that names the class on the wire."""
        ...

    @property
    def copy(self) -> str:
        """Chat form: one or a few short lines that are safe in any surface."""
        ...

    @property
    def copy_terminal(self) -> str:
        """Terminal form: may name commands, paths and technical detail."""
        ...


@attrs.frozen(kw_only=True)
class ForeignEvent:
    """An event of a kind this version does not know, sent by newer code that finishes an older run.

    Attributes:
        kind: the kind as sent.
        fields: everything else as sent, verbatim.
    """

    kind: str
    fields: Mapping[str, Any] = attrs.field(factory=dict)
    copy: str = ""
    copy_terminal: str = ""


def _plain(value: Any) -> Any:
    """Reduce a field to what JSON can say. A secret on its way out is a programming error."""
    match value:
        case Secret():
            raise TypeError("a Secret cannot go on the wire")
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case PurePath():
            return str(value)
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _ if attrs.has(type(value)):
            return {
                field.name: _plain(getattr(value, field.name))
                for field in attrs.fields(type(value))
                if not field.name.startswith("_")
            }
        case Iterable():
            return [_plain(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} has no wire form")


def to_wire(event: Event) -> dict[str, Any]:
    """The one wire form: `{"kind": ..., fields..., "copy": ..., "copy_terminal": ...}`.

    Args:
        event: any state or event of nedura.

    Raises:
        TypeError: a field has no JSON form (a secret never has one).
    """
    if isinstance(event, ForeignEvent):
        fields = dict(event.fields)
    else:
        fields = _plain(event)
    return {"kind": event.kind, **fields, "copy": event.copy, "copy_terminal": event.copy_terminal}


def to_json_line(event: Event) -> str:
    """`to_wire` as one line of JSON without its line end."""
    return json.dumps(to_wire(event), ensure_ascii=False, separators=(",", ":"))


def from_wire(record: Mapping[str, Any], known: Mapping[str, type[Any]]) -> Event:
    """Read a wire record back. A kind or shape that `known` does not cover becomes a `ForeignEvent` with cleaned copy.

    Args:
        record: a decoded wire line.
        known: kind -> class.
    """
    kind = clean(record.get("kind"), 80) or "unknown"
    fields = {key: value for key, value in record.items() if key not in ("kind", "copy", "copy_terminal")}
    cls = known.get(kind)
    if cls is not None:
        from cattrs import structure  # lazily: only readers of another process pay for cattrs
        from cattrs.errors import BaseValidationError

        names = {field.name for field in attrs.fields(cls)}
        if names >= fields.keys():
            try:
                event: Event = structure(fields, cls)
            except (BaseValidationError, TypeError, ValueError, KeyError):
                pass
            else:
                return event
    return ForeignEvent(
        kind=kind,
        fields=fields,
        copy=clean_block(record.get("copy"), 2000),
        copy_terminal=clean_block(record.get("copy_terminal"), 8000),
    )
