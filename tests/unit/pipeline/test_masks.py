"""No credential leaves a run: not in an event that is shown, not on the wire, not in the receipt, whatever field quotes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.fleet import FleetMatrix, MatrixRow
from nedura.fleet.restart_events import MemberFailed
from nedura.installs import CodeIdentity
from nedura.text import redact
from nedura.update.events import (
    FollowUp,
    InterruptedFound,
    Notice,
    PlanReady,
    RuntimeOutcomes,
    SnapshotTaken,
    StepDone,
    UpdateFinished,
)
from nedura.update.events_completion import PackageReport
from nedura.update.ledger.masks import masked_event, masked_record
from nedura.wire import Event, ForeignEvent, to_json_line
from tests.kits.pipeline import GOOD_CHILD, Toy

NEEDLE = "sesame1984needle"
URL = f"https://u:{NEEDLE}@host/x.git"

EVENTS: list[Event] = [
    FollowUp(step="build", reason=f"fatal: {URL}"),
    Notice(text=f"NPM_AUTH={NEEDLE}"),
    PlanReady(plan={"runtimes": [{"detail": {"argv": [f"--token={NEEDLE}", URL]}}]}, summary=URL),
    SnapshotTaken(profile="p", snapshot_id="s", incomplete=(URL,)),
    RuntimeOutcomes(rows=({"profile": "p", "outcome": "failed", "reason": f"password={NEEDLE}"},)),
    PackageReport(sections={"pm_refusal": {"reason": [URL]}}),
    MemberFailed(profile="p", pid=1, check="start", reason=f"Environment: API_KEY={NEEDLE}"),
    FleetMatrix(expected=CodeIdentity(), rows=(MatrixRow(profile="p", pid=1, state="unknown", note=URL),), complete=False),
    ForeignEvent(kind="later", fields={"deep": [{"api_key": NEEDLE}]}, copy=URL, copy_terminal=URL),
    InterruptedFound(run_id="r", last_stage=URL),
    UpdateFinished(run_id="r", outcome="failed", exit_code=1, stop_reason=f"Authorization: Basic {NEEDLE}"),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_is_shown_and_sent_without_the_credential(event: Event) -> None:
    safe = masked_event(event)
    assert type(safe) is type(event)
    assert NEEDLE in to_json_line(event), "the trap holds"
    assert NEEDLE not in to_json_line(safe) + safe.copy + safe.copy_terminal
    assert NEEDLE not in json.dumps(masked_record(json.loads(to_json_line(event))))


def test_what_holds_no_credential_stays_the_same_object() -> None:
    same: list[Event] = [
        StepDone(name="x", detail="fetched ssh://git@host/x.git"),
        FleetMatrix(expected=CodeIdentity(), rows=(), complete=True),
    ]
    for event in same:
        assert masked_event(event) is event


async def test_a_failed_run_tells_nobody_its_credential(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", errors={"prepare": UpdateError(f"git said: {URL} is gone", stop_class="x")})
    finished, events = await toy.run()
    said = "".join(to_json_line(event) + event.copy_terminal for event in events)
    assert finished.exit_code == 1
    assert "git said" in said
    assert NEEDLE not in said + json.dumps(toy.latest()) + (toy.home / "logs/update.log").read_text()


async def test_a_child_tells_nobody_its_credential(tmp_path: Path) -> None:
    child = (
        GOOD_CHILD
        + f"tell(kind='follow_up', step='build', reason={URL!r}, copy_terminal={URL!r})\n"
        + f"tell(kind='from_the_future', deep=[dict(env=['MY_SECRET={NEEDLE}'], api_key={NEEDLE!r})], copy_terminal={URL!r})\n"
        + f"print({URL!r})\nclose(pm_refusal=dict(reason={URL!r}))\n"
    )
    toy = Toy(tmp_path / "home", child=child)
    _, events = await toy.run()
    said = "".join(to_json_line(event) + event.copy_terminal for event in events)
    assert "from_the_future" in said
    receipt = json.dumps(toy.latest())
    assert "pm_refusal" in receipt
    assert NEEDLE not in said + receipt + (toy.home / "logs/update.log").read_text()


@pytest.mark.parametrize(
    "text",
    [
        f"https://{NEEDLE}@host/x.git",
        f"fatal: could not read from 'http://{NEEDLE}:x-oauth-basic@127.0.0.1:1/x.git'",
        f"https://u:p@{NEEDLE}@host/x",
        f"Authorization: Basic {NEEDLE}",
        f"authorization: token {NEEDLE}",
        f"STRIPE_KEY={NEEDLE} HOME=/root",
        f"declare -x NPM_AUTH='{NEEDLE}'",
        f"GH_PAT={NEEDLE}",
        f"DB_PASS={NEEDLE}",
        f"AWS_SECRET_ACCESS_KEY={NEEDLE}",
        f"https://host/x?private_token={NEEDLE}",
        f"_auth={NEEDLE}",
        f"Cookie: session={NEEDLE}; path=/",
        f"machine host login me password {NEEDLE}",
    ],
)
def test_credentials_of_git_urls_headers_and_environment_dumps(text: str) -> None:
    assert NEEDLE not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "ssh://git@github.com/o/r.git",
        "git@github.com:o/r.git",
        "https://host/@scope/package",
        "The token expired yesterday.",
        "KEY=value PATH=/usr/bin:/bin",
        "basic rollback of generation 000012",
        "password is wrong",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text
