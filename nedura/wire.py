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

__all__ = ["LATER", "Event", "ForeignEvent", "fitting_line", "from_wire", "to_json_line", "to_wire"]

LATER: Mapping[str, Any] = {"later": True}
"""Metadata of a field that an event got after its first release: it travels only while it says something. Readers of that release
take a record with a field that they do not know as an event of no known kind, and show it as such."""
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
                if not field.name.startswith("_") and not _is_silent(field, value)
            }
        case Iterable():
            return [_plain(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} has no wire form")


def _is_silent(field: attrs.Attribute[Any], value: Any) -> bool:
    return bool(field.metadata.get("later")) and getattr(value, field.name) == field.default


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


def fitting_line(record: Mapping[str, Any], limit: int = MAX_LINE) -> bytes:
    """A record as one line that a reader accepts, however wide the fleet is.

    What is too long is sent with its longest lists cut and its copy shortened; `cut` says how many items of which field are not in it.
    A reader that knows the kind then takes it as a `ForeignEvent` and shows the copy, which was made from the whole.

    Args:
        record: a wire record.
        limit: longest line in bytes, its end included.
    """
    data = _line_of(record)
    if len(data) <= limit:
        return data
    short = {
        **record,
        "copy": _cut_text(record.get("copy")),
        "copy_terminal": _cut_text(record.get("copy_terminal")),
    }
    cut: dict[str, int] = {}
    while len(data := _line_of({**short, "cut": cut})) > limit:
        widest = max(short, key=lambda key: len(_line_of({key: short[key]})))
        value = short[widest]
        if isinstance(value, list | tuple) and value:
            kept = len(value) // 2
            cut[widest] = cut.get(widest, 0) + len(value) - kept
            short[widest] = list(value[:kept])
        elif widest in ("kind", "at", "copy", "copy_terminal"):
            short[widest] = clean(value, 200)
        else:
            cut[widest] = 1
            del short[widest]
    return data


def _line_of(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _cut_text(value: Any, limit: int = 7000) -> str:
    """The first whole lines of a text, and how many more there are."""
    text = str(value or "")
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    while len(lines) > 1 and sum(map(len, lines)) + len(lines) > limit:
        lines = lines[: len(lines) * 3 // 4]
    more = text.count("\n") + 1 - len(lines)
    return "\n".join(
        [*(clean(line, limit) for line in lines), f"… and {more} more lines"]
        if more
        else [clean(lines[0], limit)]
    )


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
