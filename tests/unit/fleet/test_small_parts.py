"""State records, protocol lines, storms, markers, stat lines, and the matrix events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.claim import PidRecord
from nedura.fleet.control_protocol import (
    ANSWER_LIMIT,
    BadRequest,
    encode_request,
    failure,
    parse_answer,
    parse_request,
    success,
    unknown_verb,
)
from nedura.fleet.events import EVENTS, FleetMatrix, FleetStatus, VerifyWaiting
from nedura.fleet.ledger import LedgerEntry
from nedura.fleet.model import Foreign, MatrixRow
from nedura.fleet.notify import Notifier
from nedura.fleet.processes import parse_stat, same_start, split_cmdline
from nedura.fleet.statefile import parse_moment, parse_state
from nedura.fleet.storm import StormRule, storm_delay
from nedura.installs import CodeIdentity
from nedura.wire import to_wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STATE_KEYS = st.sampled_from(
    ["pid", "start_time", "gateway_state", "active_agents", "served_profiles", "updated_at", "code_sha", "nedura_home", "stale"]
)  # fmt: skip


@given(st.dictionaries(STATE_KEYS, JSON) | JSON)
def test_any_state_record_is_read_without_trust(value: object) -> None:
    record = parse_state(value, 2e9)
    if record is not None:
        assert record.active_agents >= 0
        assert record.pid is None or record.pid > 0
        assert "\x1b" not in record.state + record.code.code_sha


@given(JSON)
def test_any_pid_record_is_read_without_trust(value: object) -> None:
    record = PidRecord.parse(value)
    assert record is None or 0 < record.pid < 2**31
    LedgerEntry.parse(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1767225600.0),
        ("2026-01-01T00:00:00", 1767225600.0),
        ("2026-01-01T01:00:00+01:00", 1767225600.0),
        (1767225600, 1767225600.0),
        (1, None),
        (9e12, None),
        ("junk", None),
        (None, None),
        (True, None),
    ],
)
def test_moments(value: object, seconds: float | None) -> None:
    assert parse_moment(value, 1767225600.0) == seconds


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 0", 4242),
        ("7 ()) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 0", 99),
    ],
)
def test_the_start_time_stands_behind_the_last_parenthesis(line: str, start: int) -> None:
    stat = parse_stat(line)
    assert stat is not None
    assert stat.start_time == start


@pytest.mark.parametrize("line", ["", "7 (x", "7 (x) S 1", "7 (x) S a " + "b " * 30])
def test_a_torn_stat_line_is_no_process(line: str) -> None:
    assert parse_stat(line) is None


def test_start_times_have_three_answers() -> None:
    assert (same_start(1, 1), same_start(1, 2), same_start(None, 1), same_start(1, None)) == (
        True,
        False,
        None,
        None,
    )
    assert same_start(100, 250, tolerance=200) is True


def test_command_lines_with_padding_and_empty_arguments() -> None:
    assert split_cmdline(b"a\0\0b\0") == ("a", "", "b")
    assert split_cmdline(b"nginx: worker\0\0\0\0") == ("nginx: worker",)
    assert split_cmdline(b"") == ()


@pytest.mark.parametrize(
    ("line", "error"),
    [(b"{", "bad_json"), (b"[]", "not_an_object"), (b"{}", "no_verb"), (b'{"verb":"x","params":1}', "bad_params"),
     (b"[" * 60000, "bad_json"), (b"\xff", "bad_json")],
)  # fmt: skip
def test_bad_requests(line: bytes, error: str) -> None:
    with pytest.raises(BadRequest, match=error):
        parse_request(line)


def test_answers() -> None:
    request = parse_request(encode_request("status", {"a": 1}))
    assert (request.verb, request.params, request.id) == ("status", {"a": 1}, 1)
    assert parse_answer(success({"x": 1}, 7)) == {"x": 1}
    assert json.loads(success({}, "i"))["id"] == "i"
    assert json.loads(unknown_verb(["b", "a"]))["supported_verbs"] == ["a", "b"]
    assert parse_answer(failure("no")) is None
    assert json.loads(success({"x": object()}))["error"] == "unserialisable"
    assert json.loads(success({"x": "y" * ANSWER_LIMIT}))["error"] == "too_large"


@given(st.binary(max_size=200))
def test_any_line_is_answered_or_refused(line: bytes) -> None:
    parse_answer(line)
    try:
        parse_request(line)
    except BadRequest:
        pass


@pytest.mark.parametrize(
    ("recent", "delay"), [(0, 0), (4, 0), (5, 5), (6, 10), (8, 40), (11, 300), (100, 300)]
)
def test_a_storm_slows_down(recent: int, delay: float) -> None:
    assert storm_delay([1000.0] * recent, 1001.0, StormRule()) == delay
    assert storm_delay([1000.0] * recent, 1200.0, StormRule()) == 0
    assert storm_delay([2000.0] * recent, 1000.0, StormRule()) == 0  # the clock went back


def test_watchdog_variables_of_another_process_are_ignored() -> None:
    environ = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
    assert Notifier(environ, pid=7).watchdog_s == 30
    assert Notifier(environ, pid=8).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "x"}, pid=8).watchdog_s is None
    assert not Notifier({}).send(READY="1")


ROW = MatrixRow(profile="ops", pid=7, state="stale", code_sha="1" * 40)


@pytest.mark.parametrize(
    "event",
    [
        FleetMatrix(expected=CodeIdentity(), rows=(ROW,), complete=False),
        FleetMatrix(expected=CodeIdentity(), rows=()),
        FleetMatrix(expected=CodeIdentity(), rows=(), complete=False),
        FleetStatus(expected=CodeIdentity(), rows=(ROW,), homes=(Path("/h"),)),
        FleetStatus(expected=CodeIdentity()),
        VerifyWaiting(waiting_for=("ops",), elapsed=3, deadline=120),
    ],
)
def test_every_event_has_two_registers_and_a_wire_form(
    event: FleetMatrix | FleetStatus | VerifyWaiting,
) -> None:
    assert event.copy
    empty = isinstance(event, FleetMatrix) and not event.rows and event.complete
    assert bool(event.copy_terminal) is not empty  # no rows at all: nothing is printed
    assert "nedura" not in event.copy
    assert not {"guest", "anonymous", "claim"} & set(event.copy.lower().split())
    assert json.loads(json.dumps(to_wire(event)))["kind"] == event.kind
    assert type(event) in EVENTS


@pytest.mark.parametrize(
    "reason", ["another home", "home unreadable", "another install", "another product", "another user"]
)
def test_what_is_left_alone_is_named(reason: str) -> None:
    item = Foreign(what="systemd unit", name="x.service", reason=reason, home=Path("/o"), pid=3)  # type: ignore[arg-type]
    assert item.copy_terminal.startswith("↷ x.service: systemd unit")
    assert item.copy_terminal.endswith("left alone")
