"""The poller of RFC 8628, driven in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nedura.errors import PortalError
from nedura.signin.device import (
    TRANSITIONS,
    Ask,
    DeviceCode,
    Ended,
    Granted,
    Lost,
    Outcome,
    Reply,
    Step,
    Verdict,
    Wait,
    Woke,
    device_code,
    judge,
    poll,
)
from nedura.text import Secret
from nedura.urls import Origin

PORTAL = Origin("https", "portal.example", 443)


def code(interval: float = 5, expires_in: float = 600) -> DeviceCode:
    return DeviceCode(
        device_code=Secret("d"), user_code="ABCD-EFGH", link="https://portal.example/device",
        interval=interval, expires_in=expires_in,
    )  # fmt: skip


def answer(error: str = "", status: int = 400, **more: Any) -> Callable[[float], Reply]:
    fields = {"error": error} if error else {"access_token": "t"} if status == 200 else None
    return lambda now: Reply(now=now, status=status, fields=fields, **more)


PENDING = answer("authorization_pending")
SLOW = answer("slow_down")
TOKEN = answer(status=200)


def lost(now: float) -> Lost:
    return Lost(now=now)


@attrs.frozen
class Run:
    outcome: Outcome
    asked: list[float]
    ended: float


Server = Callable[[float, int], Reply | Lost]


def drive(grant: DeviceCode, server: Server, *, latency: float = 0.0) -> Run:
    """Run a login: `server` answers (time of arrival, number of the poll)."""
    now, asked = 0.0, []
    steps = poll(grant, now)
    step: Wait | Ask = next(steps)
    for _ in range(10_000):
        try:
            if isinstance(step, Wait):
                now = max(now, step.until)
                step = steps.send(Woke(now=now))
            else:
                asked.append(now)
                reply = server(now, len(asked) - 1)
                now += latency
                step = steps.send(attrs.evolve(reply, now=now))
        except StopIteration as stop:
            return Run(stop.value, asked, now)
    raise AssertionError("the poller never ended")


def script(*answers: Callable[[float], Reply | Lost]) -> Server:
    return lambda now, number: answers[min(number, len(answers) - 1)](now)


def test_the_first_poll_waits_and_each_gap_has_a_margin() -> None:
    run = drive(code(5), script(PENDING, PENDING, TOKEN))
    assert run.asked == [6.0, 12.0, 18.0]
    assert isinstance(run.outcome, Granted)


def test_the_wait_counts_from_the_answer() -> None:
    run = drive(code(5), script(PENDING, TOKEN), latency=2.0)
    assert run.asked == [6.0, 14.0]


def test_slow_down_is_a_ratchet() -> None:
    run = drive(code(5), script(SLOW, PENDING, SLOW, PENDING, TOKEN))
    gaps = [b - a for a, b in zip(run.asked, run.asked[1:], strict=False)]
    assert gaps == pytest.approx([12, 12, 18, 18])


def test_a_larger_interval_of_the_server_wins() -> None:
    slower = lambda now: Reply(now=now, status=400, fields={"error": "slow_down", "interval": 40})  # noqa: E731
    run = drive(code(5), script(slower, TOKEN))
    assert run.asked[1] - run.asked[0] == pytest.approx(48)


@pytest.mark.parametrize(
    "trouble",
    [answer(status=429), answer("rate_limited", 429), answer("access_denied", 429), answer(status=503),
     answer("server_error", 500), answer(status=502), answer(status=408), answer(status=403, mitigated=True),
     answer("temporarily_unavailable"), lost],
)  # fmt: skip
def test_trouble_doubles_the_gap_up_to_a_minute_and_never_ends_a_login(trouble: Any) -> None:
    run = drive(code(5), script(trouble, trouble, trouble, trouble, trouble, PENDING, TOKEN))
    gaps = [b - a for a, b in zip(run.asked, run.asked[1:], strict=False)]
    assert gaps == pytest.approx([12, 24, 48, 60, 60, 6])
    assert isinstance(run.outcome, Granted)


def test_retry_after_is_obeyed() -> None:
    run = drive(
        code(5), script(answer(status=429, retry_after=33.0), answer(status=503, retry_after=1.0), TOKEN)
    )
    assert [b - a for a, b in zip(run.asked, run.asked[1:], strict=False)] == pytest.approx([33, 6])


def test_a_wait_of_a_year_ends_with_the_last_poll_at_the_deadline() -> None:
    run = drive(code(5, 100), script(answer(status=429, retry_after=3e7), TOKEN))
    assert run.asked == [6.0, 100.0]
    assert isinstance(run.outcome, Granted)


def test_silence_to_the_end_is_a_timeout_that_says_nobody_answered() -> None:
    run = drive(code(5), lambda now, number: Lost(now=now))
    assert run.outcome == Ended(reason="timed_out", answered=False)
    assert run.ended == pytest.approx(600, abs=1)


@pytest.mark.parametrize("error", ["expired_token", "code_expired", "EXPIRED_TOKEN", "device_code_expired"])
def test_an_expired_code_is_a_timeout_whatever_it_is_called(error: str) -> None:
    outcome = drive(code(), script(PENDING, answer(error))).outcome
    assert isinstance(outcome, Ended)
    assert outcome.reason == "timed_out"


@pytest.mark.parametrize("error", ["access_denied", "authorization_declined"])
def test_a_refusal_by_the_user(error: str) -> None:
    assert drive(code(), script(answer(error))).outcome == Ended(reason="access_denied", status=400)


@pytest.mark.parametrize(
    "error", ["invalid_client", "unsupported_grant_type", "unknown_thing", "invalid_request"]
)
def test_any_other_code_ends_it(error: str) -> None:
    run = drive(code(), script(answer(error)))
    assert run.outcome == Ended(reason=error, status=400)
    assert len(run.asked) == 1


def test_an_unknown_code_is_a_refusal_before_the_deadline_and_a_timeout_at_it() -> None:
    assert drive(code(5, 100), script(answer("invalid_grant"))).outcome == Ended(
        reason="invalid_grant", status=400
    )
    late = drive(code(5, 100), lambda now, n: (PENDING if now < 99 else answer("invalid_grant"))(now)).outcome
    assert isinstance(late, Ended)
    assert late.reason == "timed_out"


@pytest.mark.parametrize(
    "reply",
    [Reply(now=0, status=200, fields={"access_token": 5}), Reply(now=0, status=404), Reply(now=0, status=403),
     Reply(now=0, status=400, fields={"error": 5}), Reply(now=0, status=400, fields={"error": ""}),
     Reply(now=0, status=200, fields={"access_token": ""})],
)  # fmt: skip
def test_an_answer_without_sense_ends_it(reply: Reply) -> None:
    assert judge(reply) is Verdict.MALFORMED


@pytest.mark.parametrize(
    "reply", [Reply(now=0, status=200), Reply(now=0, status=200, fields={}), Reply(now=0, status=204)]
)
def test_a_success_without_sense_is_forgiven_twice_in_a_row(reply: Reply) -> None:
    def senseless(now: float) -> Reply:
        return attrs.evolve(reply, now=now)

    assert judge(reply) is Verdict.SENSELESS
    assert isinstance(
        drive(code(), script(senseless, senseless, PENDING, senseless, senseless, TOKEN)).outcome, Granted
    )
    run = drive(code(), script(senseless))
    assert run.outcome == Ended(reason="malformed", status=reply.status)
    assert len(run.asked) == 3


def test_after_a_suspend_the_server_decides() -> None:
    steps = poll(code(5, 100), 0.0)
    assert isinstance(next(steps), Wait)
    assert steps.send(Woke(now=3.0, suspended=True)) == Ask(last=False)
    again = steps.send(Reply(now=3.0, status=400, fields={"error": "authorization_pending"}))
    assert again == Wait(until=9.0)
    steps.send(Woke(now=9.0))
    with pytest.raises(StopIteration) as stop:
        steps.send(Reply(now=9.0, status=400, fields={"error": "invalid_grant"}))
    assert stop.value.value.reason == "timed_out"


def test_trouble_is_told_and_taken_back() -> None:
    steps = poll(code(5), 0.0)
    assert next(steps) == Wait(until=6.0, trouble=False)
    steps.send(Woke(now=6.0))
    assert steps.send(Lost(now=6.0)) == Wait(until=18.0, trouble=True)
    steps.send(Woke(now=18.0))
    assert steps.send(PENDING(18.0)) == Wait(until=24.0, trouble=False)


_ANSWERS = st.sampled_from(
    [PENDING, SLOW, answer(status=429), answer(status=429, retry_after=50.0), answer(status=503), lost,
     answer(status=429, retry_after=1e9), answer("slow_down", 429)]
)  # fmt: skip


@settings(max_examples=200)
@given(
    st.lists(_ANSWERS, min_size=1, max_size=40),
    st.floats(1, 120),
    st.floats(1, 900),
    st.floats(0, 20),
)
def test_no_poll_is_early_and_every_login_ends_by_its_deadline(
    answers: Sequence[Any], interval: float, life: float, latency: float
) -> None:
    interval = min(interval, life)
    run = drive(code(interval, life), script(*answers), latency=latency)
    assert run.ended <= life + latency + 1e-6
    ratchet, previous = interval, 0.0
    for number, moment in enumerate(run.asked):
        last = number == len(run.asked) - 1
        assert last or moment - previous >= ratchet - 1e-9
        previous = moment + latency
        reply = answers[min(number, len(answers) - 1)](moment)
        if isinstance(reply, Reply) and (reply.fields or {}).get("error") == "slow_down":
            ratchet += 5
    assert isinstance(run.outcome, Ended)
    assert run.outcome.reason == "timed_out"


@given(st.floats(1, 60), st.floats(1, 599))
def test_an_approval_is_seen_within_one_gap(interval: float, approved: float) -> None:
    run = drive(code(interval), lambda now, n: (TOKEN if now >= approved else PENDING)(now))
    assert isinstance(run.outcome, Granted)
    assert run.ended - approved <= interval * 1.2 + 1e-6


_JUNK = st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.integers()))
_BODIES = st.dictionaries(st.sampled_from(["error", "access_token", "interval"]), _JUNK)
_REPLIES = st.builds(
    Reply,
    now=st.just(0.0),
    status=st.integers(0, 999),
    fields=st.one_of(st.none(), _BODIES),
    mitigated=st.booleans(),
)


@given(st.one_of(_REPLIES, st.builds(Lost, now=st.just(0.0))))
def test_every_answer_has_a_verdict_and_every_verdict_a_step(reply: Reply | Lost) -> None:
    assert isinstance(TRANSITIONS[judge(reply)], Step)


def fields(**more: Any) -> Mapping[str, Any]:
    base = {
        "device_code": "dc", "user_code": "ABCD-EFGH", "verification_uri": "https://portal.example/device",
        "verification_uri_complete": "https://portal.example/device?user_code=ABCD-EFGH", "expires_in": 600, "interval": 7,
    }  # fmt: skip
    return {name: value for name, value in (base | more).items() if value != "absent"}


def test_a_device_answer_is_read() -> None:
    read = device_code(fields(), PORTAL)
    assert (read.user_code, read.interval, read.expires_in) == ("ABCD-EFGH", 7, 600)
    assert read.link_complete == "https://portal.example/device?user_code=ABCD-EFGH"
    assert "dc" not in repr(read)


def test_interval_and_complete_link_are_optional() -> None:
    read = device_code(fields(interval="absent", verification_uri_complete="absent"), PORTAL)
    assert (read.interval, read.link_complete) == (5, None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("interval", 0, 1), ("interval", -3, 5), ("interval", "7", 5), ("interval", None, 5), ("interval", True, 5),
        ("interval", 1e9, 600), ("interval", math.inf, 5), ("interval", 10**400, 5), ("interval", 0.2, 1),
        ("expires_in", -600, 1), ("expires_in", 0, 1), ("expires_in", 3.2e8, 3600), ("expires_in", "x", 600),
        ("expires_in", math.nan, 600), ("expires_in", None, 600), ("expires_in", [1], 600),
    ],
)  # fmt: skip
def test_numbers_are_clamped(name: str, value: Any, expected: float) -> None:
    assert getattr(device_code(fields(**{name: value}), PORTAL), name) == expected


@pytest.mark.parametrize("name", ["verification_uri", "verification_uri_complete"])
@pytest.mark.parametrize(
    "link",
    ["file:///etc/passwd", "javascript:alert(1)", "-x", "https://portal.example@evil.example/", "http://portal.example/",
     "https://evil.example/device", "https://portal.example.evil.example/", "https://portal.example/\n", 7,
     "https://portal.example/\x1b]8;;http://evil\x07", "https://portal.example\\@evil.example", "https://" + "a" * 3000,
     "https://portal.example/\u202eabc", "portal.example/device", "https://127.0.0.1/device", "http://localhost/x"],
)  # fmt: skip
def test_a_link_that_leads_elsewhere_is_refused(name: str, link: Any) -> None:
    with pytest.raises(PortalError):
        device_code(fields(**{name: link}), PORTAL)


@pytest.mark.parametrize(
    "more",
    [{"device_code": "absent"}, {"device_code": ""}, {"device_code": 5}, {"device_code": "a b"}, {"device_code": "x" * 5000},
     {"user_code": "absent"}, {"user_code": ""}, {"user_code": "A\x1b[31m"}, {"user_code": "x" * 80}, {"user_code": 7},
     {"user_code": "https://evil.example"}, {"user_code": "<b>ABCD</b>"}, {"verification_uri": "absent"}],
)  # fmt: skip
def test_a_device_answer_without_sense_is_refused(more: Mapping[str, Any]) -> None:
    with pytest.raises(PortalError):
        device_code(fields(**more), PORTAL)


@given(
    st.dictionaries(
        st.sampled_from(list(fields())),
        st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.lists(st.none())),
    )
)
def test_arbitrary_device_answers_are_read_or_refused(more: dict[str, Any]) -> None:
    try:
        read = device_code(fields(**more), PORTAL)
    except PortalError:
        return
    assert 1 <= read.interval <= 3600
    assert 1 <= read.expires_in <= 3600
