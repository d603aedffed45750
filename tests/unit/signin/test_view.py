"""What a terminal shows of a sign-in, byte for byte."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Callable

import pytest

from nedura.signin import AlreadySignedIn, Cancelled, Code, Completed, Failed, SignInState, TimedOut, Waiting
from nedura_cli.output import Output
from nedura_cli.sign_in_view import exit_code, show_sign_in

CODE = Code(
    link="https://p.example/device?user_code=ABCD-EFGH",
    page="https://p.example/device",
    code="ABCD-EFGH",
    expires_in=600,
)


def make(
    *states: SignInState, pause: float = 0.0
) -> Callable[[Callable[[], bool]], AsyncGenerator[SignInState, None]]:
    async def flow(cancelled: Callable[[], bool]) -> AsyncGenerator[SignInState, None]:
        for state in states:
            yield state
            await asyncio.sleep(pause)

    return flow


def shown(*states: SignInState, pause: float = 0.0, heartbeat: float = 30.0, **given: bool) -> str:
    output = Output(stdout=io.StringIO(), stderr=io.StringIO(), **given)
    last = show_sign_in(make(*states, pause=pause), output, browser=False, heartbeat=heartbeat)
    assert last == states[-1]
    assert isinstance(output.stdout, io.StringIO)
    return output.stdout.getvalue()


def test_link_and_code_come_first_as_plain_unwrapped_lines() -> None:
    lines = shown(CODE, Waiting(), Completed(email="ada@example.test")).splitlines()
    assert lines[2] == f"  {CODE.link}"
    assert lines[4].endswith("ABCD-EFGH")
    assert lines[-1] == "Signed in as ada@example.test."


def test_a_precondition_has_no_start_line() -> None:
    assert shown(AlreadySignedIn(email="a@b.cd")).startswith("Already signed in as a@b.cd.")


def test_json_is_one_event_a_line_and_nothing_else() -> None:
    lines = shown(CODE, Waiting(), Failed(reason="access_denied"), as_json=True).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["code", "waiting", "failed"]


def test_plain_mode_gives_a_sign_of_life_and_only_appends() -> None:
    text = shown(CODE, Waiting(), Completed(), pause=0.15, heartbeat=0.04, plain=True)
    assert text.count("Still waiting for the sign-in.") >= 2
    assert "\r" not in text
    assert "\x1b" not in text
    assert "Still waiting" not in shown(CODE, Waiting(), Completed(), pause=0.1, heartbeat=0.02)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (Completed(), 0),
        (AlreadySignedIn(), 0),
        (Cancelled(), 130),
        (TimedOut(), 1),
        (Failed(), 1),
        (Failed(saved=True), 1),
    ],
)
def test_exit_codes(state: SignInState, code: int) -> None:
    assert exit_code(state) == code
