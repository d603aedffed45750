"""The published schema fits what the fold makes, and the fold makes nothing that the schema does not name."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from nedura.update.ledger.receipt import apply, opened
from nedura.wire import to_wire
from tests.unit.pipeline.test_copy import SAMPLES

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "docs/schemas/receipt.json").read_text()
)


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def complaints(value: Any, schema: Any, path: str = "$") -> list[str]:
    """A small validator of the keywords that this schema uses."""
    if schema is True:
        return []
    if "$ref" in schema:
        return complaints(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], path)
    if "anyOf" in schema:
        tried = [complaints(value, one, path) for one in schema["anyOf"]]
        return [] if any(not one for one in tried) else tried[0]
    found = []
    types = schema.get("type")
    wanted = [types] if isinstance(types, str) else list(types or ())
    if wanted and not any(isinstance(value, TYPES[name]) for name in wanted):
        return [f"{path} is {type(value).__name__}, not {types}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{path} is {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path} is {value!r}")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        found.append(f"{path} is too long")
    if isinstance(value, dict):
        found += [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, item in value.items():
            if name in schema.get("properties", {}):
                found += complaints(item, schema["properties"][name], f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            found += complaints(item, schema["items"], f"{path}[{number}]")
    return found


def receipt() -> dict[str, Any]:
    stream = [{**to_wire(event), "at": "2026-01-01T00:00:00Z"} for event in SAMPLES]
    return reduce(apply, stream, opened())


def test_a_receipt_of_every_event_fits() -> None:
    assert complaints(json.loads(json.dumps(receipt())), SCHEMA) == []


def test_every_key_is_described() -> None:
    described = set(SCHEMA["properties"])
    assert {name for name in receipt() if not name.startswith("pm_")} <= described


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"steps": [{}]}, {"outcome": 3}, {"stages": [{"name": "x", "outcome": "odd", "at": ""}]}],
)
def test_the_validator_notices(change: dict[str, Any]) -> None:
    assert complaints({**receipt(), **change}, SCHEMA)


def test_keys_of_later_versions_are_welcome() -> None:
    assert complaints({**receipt(), "from_the_future": {"x": 1}}, SCHEMA) == []
