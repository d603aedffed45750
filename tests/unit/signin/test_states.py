"""The words of every state, with the worst fields the outside could send."""

from __future__ import annotations

import itertools
import re
from typing import Any, assert_never

import attrs
import pytest

from nedura.signin.states import (
    SIGN_IN_STATES,
    AlreadySignedIn,
    Cancelled,
    Code,
    Completed,
    Failed,
    SignInState,
    TimedOut,
    Waiting,
)
from nedura.wire import from_wire, to_wire

HOSTILE = (
    "https://evil.example/x", "http://[::1]/", "www.evil.example", "[x](https://evil)", "<b>bold</b>", "javascript:alert(1)",
    "Traceback (most recent call last): ValueError('boom')", "run nedura auth upgrade", "--insecure", "guest", "ANONYMOUS",
    "claim it", "\x1b[31mred\x1b]8;;http://evil\x07", "a\nb\r\nc", "\u202egnp.exe", "x" * 5000, "guest@claim.example",
    "anonymous/claim-7b", "ValueError: boom", "a@b.example/https://evil",
)  # fmt: skip
BANNED = re.compile(
    r"(?i)guest|anonymous|claim|://|www\.|nedura|hermes |traceback|valueerror|boom|\x1b|\u202e|javascript:|<b>|\]\(|--\w"
)


def instances() -> list[SignInState]:
    """Every class with every hostile text in every field."""
    made: list[SignInState] = []
    for cls, text in itertools.product(SIGN_IN_STATES.values(), HOSTILE):
        base: dict[str, Any] = {}
        for field in attrs.fields(cls):
            match field.name:
                case "expires_in" | "interval":
                    base[field.name] = 600.0
                case "handoff":
                    base[field.name] = (text, f"Apps moved: {text}")
                case "handoff_status":
                    base[field.name] = {"lines": [text]}
                case "retry_after":
                    base[field.name] = 90.0
                case "replaced" | "trouble" | "model_changed" | "shared" | "saved" | "retryable":
                    continue
                case _:
                    base[field.name] = text
        flags = [
            f.name
            for f in attrs.fields(cls)
            if f.name in ("replaced", "trouble", "model_changed", "shared", "saved")
        ]
        choices = itertools.product((True, False), repeat=len(flags))
        made.extend(cls(**base, **dict(zip(flags, values, strict=True))) for values in choices)
    return made


def test_chat_copy_holds_nothing_it_must_not() -> None:
    for state in instances():
        text = getattr(state, "copy_with_wait", state.copy) + state.copy
        assert not BANNED.search(text), (state, text)
        assert "\n\n" not in state.copy


@pytest.mark.parametrize("reason", ["", "access_denied", "anon_rate_limited", "anon_gate_paused", "anon_x", "server_says_boom",
                                    "anon_account_locked", "anon_gate_closed", "invalid_grant", "untrusted_server"])  # fmt: skip
def test_a_failure_never_shows_its_code_or_cause_in_a_chat(reason: str) -> None:
    state = Failed(reason=reason, detail="ValueError: boom at https://x nedura auth")
    assert not BANNED.search(state.copy)
    assert reason == "" or reason not in state.copy
    assert "anon" not in state.copy


def test_no_control_character_reaches_a_terminal_either() -> None:
    for state in instances():
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", state.copy_terminal)


def test_every_state_goes_over_the_wire_and_back() -> None:
    for state in instances()[::7]:
        wire = to_wire(state)
        assert wire["kind"] == state.kind
        assert wire["copy"] == state.copy
        back = from_wire(wire, SIGN_IN_STATES)
        assert to_wire(back) == wire


def test_flags_of_the_states() -> None:
    table = {cls.kind: (cls.terminal, cls.ok, cls.precondition) for cls in SIGN_IN_STATES.values()}
    assert table == {
        "code": (False, False, False),
        "waiting": (False, False, False),
        "completed": (True, True, False),
        "cancelled": (True, False, False),
        "timed_out": (True, False, False),
        "failed": (True, False, False),
        "already_signed_in": (True, True, True),
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 minute."), (60, "1 minute."), (61, "2 minutes."), (600, "10 minutes."), (0.5, "1 minute.")],
)
def test_the_wait_is_told_in_minutes(seconds: float, words: str) -> None:
    state = Code(link="https://p/d?c", code="A", expires_in=seconds)
    assert state.copy_with_wait.endswith(f"up to {words}")


def test_completed_says_who_and_which_model() -> None:
    done = Completed(
        email="ada@example.test", model="nous/hermes-4", model_changed=True, handoff=("Moved: Gmail.",)
    )
    assert (
        done.copy == "Signed in as ada@example.test.\nThe default model is now nous/hermes-4.\nMoved: Gmail."
    )
    assert Completed().copy == "Signed in."
    assert Completed(model="mine", email="a@b.cd").copy == "Signed in as a@b.cd."
    assert "/model" in Completed(model_changed=True).copy
    assert "nedura model" in Completed(model_changed=True).copy_terminal


def test_busy_names_a_spoken_wait() -> None:
    assert "about a minute" in Failed(reason="anon_rate_limited", retry_after=60).copy
    assert Failed(reason="anon_rate_limited").retryable
    assert not Failed(reason="access_denied").retryable
    assert Failed(reason="anon_gate_paused", retry_after=float("nan")).retry_after is None


def test_the_detail_is_for_terminals() -> None:
    assert "boom" in Failed(detail="boom").copy_terminal
    assert "boom" in Failed(reason="access_denied", detail="boom").copy_terminal
    assert "boom" in TimedOut(detail="boom").copy_terminal
    assert "boom" not in TimedOut(detail="boom").copy


def test_a_saved_failure_says_that_the_account_is_there() -> None:
    assert "signed in" in Failed(saved=True).copy
    assert "othing was saved" not in Failed(saved=True).copy


def test_users_can_match_exhaustively() -> None:
    def name(state: SignInState) -> str:
        match state:
            case Code() | Waiting():
                return "running"
            case Completed() | AlreadySignedIn():
                return "good"
            case Cancelled() | TimedOut() | Failed():
                return "bad"
            case _:
                assert_never(state)

    assert name(Completed()) == "good"
