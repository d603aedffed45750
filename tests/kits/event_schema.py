"""The JSON Schema of what `nedura update --json` prints, made from the event classes themselves.

`python -m tests.kits.event_schema` writes `docs/schemas/update-events.json` anew; a test says when that is due.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

import attrs

from nedura.update.kinds import known_kinds
from nedura.update.ledger.status import UpdateStatus
from nedura.update.planning.plan import Plan
from nedura.update.source.check import CheckResult

PLACE = Path(__file__).parents[2] / "docs/schemas/update-events.json"
PLAIN: dict[Any, Any] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    datetime: {"type": "string"},
}
DESCRIPTION = (
    "One line of `nedura update --json`, of `--plan --json` and `--check --json`. The last line of an update is `update_finished`, or "
    "`error` for a command that could not be begun. A reader takes a kind or a field that it does not know as it is: newer code may "
    "finish an older run, and what is longer than a line of the pipe between the two comes shortened, with `cut` saying what is missing. "
    "`copy` is the chat form, `copy_terminal` the terminal form."
)


def schema_of(hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's type; a class of ours becomes a definition.

    Raises:
        TypeError: a type that no event field had so far.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        return dict(PLAIN[hint])
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(arg, defs) for arg in args]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], defs)}
    if origin is tuple and args[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of(arg, defs) for arg in args]}
    if origin is not None and issubclass(origin, (tuple, Sequence, frozenset, set)):
        return {"type": "array", "items": schema_of(args[0], defs)}
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return {"type": "string"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [one.value for one in hint]}
    if isinstance(hint, type) and attrs.has(hint):
        if hint.__name__ not in defs:
            defs[hint.__name__] = {}  # a class may hold itself
            defs[hint.__name__] = object_of(hint, defs)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"no schema for {hint!r}")


def object_of(cls: type[Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of an attrs class as `to_wire` writes it."""
    hints = typing.get_type_hints(cls)
    fields = [field for field in attrs.fields(cls) if not field.name.startswith("_")]
    names = [field.name for field in fields]
    return {
        "description": (cls.__doc__ or "").strip().splitlines()[0],
        "type": "object",
        "required": [field.name for field in fields if not field.metadata.get("later")],
        "properties": {name: schema_of(hints[name], defs) for name in names},
    }


def event_of(kind: str, cls: type[Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of one kind of line."""
    made = object_of(cls, defs)
    text = {"type": "string"}
    made["required"] = ["kind", *made["required"], "copy", "copy_terminal"]
    made["properties"] = {
        "kind": {"const": kind},
        **made["properties"],
        "copy": text,
        "copy_terminal": text,
    }
    return made


def build() -> dict[str, Any]:
    """The whole schema."""
    defs: dict[str, Any] = {}
    kinds = {**known_kinds(), **{cls.kind: cls for cls in (Plan, CheckResult, UpdateStatus)}}
    events = {f"event:{kind}": event_of(kind, kinds[kind], defs) for kind in sorted(kinds)}
    text = {"type": "string"}
    events["event:error"] = {
        "description": "The command could not be begun, or broke; nothing follows.",
        "type": "object",
        "required": ["kind", "code", "copy", "copy_terminal"],
        "properties": {"kind": {"const": "error"}, "code": text, "copy": text, "copy_terminal": text},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "nedura:update-events:1",
        "title": "Wire events of an update, schema 1",
        "description": DESCRIPTION,
        "type": "object",
        "required": ["kind", "copy", "copy_terminal"],
        "properties": {"kind": text, "copy": text, "copy_terminal": text},
        "allOf": [
            {
                "if": {
                    "properties": {"kind": {"const": name.removeprefix("event:")}},
                    "not": {"required": ["cut"]},
                },
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in sorted(events)
        ],
        "$defs": dict(sorted({**defs, **events}.items())),
    }


def as_text() -> str:
    """The file's content."""
    return json.dumps(build(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(as_text(), encoding="utf-8")
