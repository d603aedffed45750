"""`docs/schemas/update-events.json` is what the event classes are, and every event that is made fits it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet import FleetMatrix, MatrixRow
from nedura.update.kinds import known_kinds
from nedura.update.planning.plan import Plan, PlanRuntime
from nedura.wire import Event, to_json_line
from tests.kits.event_schema import PLACE, as_text
from tests.kits.pipeline import NEW, Toy, ToyFleet, gateway
from tests.unit.pipeline.test_copy import SAMPLES

SCHEMA: dict[str, Any] = json.loads(PLACE.read_text())
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None),
}  # fmt: skip


def complaints(value: Any, schema: dict[str, Any], path: str = "$") -> list[str]:
    """A small validator of the keywords that the schema uses."""
    if "$ref" in schema:
        return complaints(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], path)
    if "anyOf" in schema:
        tried = [complaints(value, one, path) for one in schema["anyOf"]]
        return [] if any(not one for one in tried) else tried[0]
    if "const" in schema and value != schema["const"]:
        return [f"{path} is {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path} is {value!r}"]
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{path} is {type(value).__name__}, not {kind}"]
    found = [f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    items: list[tuple[str, Any, Any]] = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties", {})
        items = [(f".{name}", item, known.get(name, rest)) for name, item in value.items()]
        found += [
            f"{path}.{name} has no place" for name in value if known and name not in known and "kind" in known
        ]
    elif isinstance(value, list) and "prefixItems" in schema:
        items = [(f"[{at}]", *pair) for at, pair in enumerate(zip(value, schema["prefixItems"], strict=True))]
    elif isinstance(value, list):
        items = [(f"[{at}]", item, schema.get("items", {})) for at, item in enumerate(value)]
    for name, item, one in items:
        found += complaints(item, one, path + name)
    return found


def judged(event: Event) -> list[str]:
    record = json.loads(to_json_line(event))
    return complaints(record, {"$ref": f"#/$defs/event:{record['kind']}"})


WIDE: list[Event] = [
    FleetMatrix(expected=NEW, rows=(MatrixRow(profile="a", pid=1, state="current", home=Path("/h")),)),
    Plan(
        runtimes=(
            PlanRuntime(
                kind="gateway",
                profile="a",
                pid=1,
                supervisor="manual",
                code_sha=None,
                code_version="1",
                restart_via="manual",
            ),
        )
    ),
]


def test_the_file_is_made_from_the_classes() -> None:
    assert PLACE.read_text() == as_text(), "make it anew: python -m tests.kits.event_schema"


def test_every_kind_has_its_place_and_is_dispatched() -> None:
    kinds = {one["if"]["properties"]["kind"]["const"] for one in SCHEMA["allOf"]}
    assert kinds >= {*known_kinds(), "plan", "check", "error", "update_status"}
    for one in SCHEMA["allOf"]:
        assert one["then"]["$ref"].rsplit("/", 1)[1] in SCHEMA["$defs"]


@pytest.mark.parametrize("event", [*SAMPLES, *WIDE], ids=lambda event: event.kind)
def test_events_fit(event: Event) -> None:
    assert judged(event) == []


def test_the_validator_sees_what_does_not_fit() -> None:
    record = json.loads(to_json_line(WIDE[0]))
    of_kind = {"$ref": "#/$defs/event:matrix"}
    assert complaints(record, of_kind) == []
    assert complaints({**record, "rows": [{"profile": 5}]}, of_kind)
    assert complaints({key: value for key, value in record.items() if key != "rows"}, of_kind)
    assert complaints({**record, "more": 1}, of_kind)


async def test_what_a_run_yields_fits(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", child="raise SystemExit(1)\n")
    toy.fleet = ToyFleet((gateway("default", toy.home, 11),))
    _, events = await toy.run()
    assert len(events) > 10
    assert {complaint for event in events for complaint in judged(event)} == set()
