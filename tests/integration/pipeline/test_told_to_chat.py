"""What a chat hears of its update, and what telling it may cost: nothing. What a member that needed nothing is called: current."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest

from nedura.fleet import Fleet
from nedura.product import NEDURA
from nedura.update import ReceiptStore, UpdateOptions
from nedura.update.completion.completion_parts import CompletionParts
from nedura.update.completion.request import CompletionRequest
from nedura.update.completion.second_half import Completion
from nedura.update.events import RuntimeOutcomes
from nedura.update.ledger.receipt import opened
from tests.kits.pipeline import INSTALL_ID, NEW, OLD, Toy, ToyFleet, gateway

CHAT = UpdateOptions(gateway_mode=True)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path / "home")


def completion(home: Path, fleet: ToyFleet, **options: Any) -> Completion:
    request = CompletionRequest(
        update_id="run",
        nonce="n",
        source=str(home),
        root_home=str(home),
        home=str(home),
        install_id=INSTALL_ID,
        before=OLD,
        expected=NEW,
        first_member=False,
        options=options,
    )
    return Completion(
        request=request,
        product=NEDURA,
        parts=CompletionParts(fleet=fleet, upkeep=lambda _: []),
        environ={"NEDURA_GATEWAY_LOCK_DIR": str(home / "locks"), "HOME": str(home)},
    )


async def test_a_file_that_cannot_be_written_for_the_chat_costs_the_fleet_nothing(toy: Toy) -> None:
    (toy.home / ".update_exit_code").mkdir()
    fleet = ToyFleet((gateway("default", toy.home, 11),))
    half = completion(toy.home, fleet, gateway_mode=True)
    events = [event async for event in half.events()]
    assert fleet.restarted == ["default"]
    assert half.followups == []
    (said,) = [event.copy_terminal for event in events if event.kind == "notice"]
    assert "chat" in said


async def test_what_an_earlier_run_told_the_chat_is_gone_while_this_one_runs(toy: Toy) -> None:
    code = toy.home / ".update_exit_code"
    code.write_text("0\n")
    seen: list[bool] = []
    toy.hooks["plan"] = lambda run: seen.append(code.exists())
    await toy.run(CHAT)
    assert seen == [False]
    assert code.read_text().strip() == "0"


@contextmanager
def another_runs(toy: Toy, initiator: str) -> Iterator[None]:
    """Another process's update holds the lock and has its receipt open."""
    holder = subprocess.Popen(["sleep", "60"])
    try:
        created = psutil.Process(holder.pid).create_time()
        (toy.home / ".nedura-update-in-progress").write_text(
            f"{holder.pid}\n{created:.0f}\nct:{created:.3f}\n"
        )
        theirs = {**opened(), "update_id": "theirs", "started_at": "2026-01-01T00:00:00Z", "pid": holder.pid}
        ReceiptStore(toy.home).write({**theirs, "pid_create_time": created, "initiator": initiator})
        yield
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize(("initiator", "told"), [("cli", "1"), ("gateway", None)])
async def test_a_chat_refused_for_a_running_update_hears_1_unless_the_file_is_another_chats(
    toy: Toy, initiator: str, told: str | None
) -> None:
    with another_runs(toy, initiator):
        finished, _ = await toy.run(CHAT)
    assert finished.exit_code == 2
    code = toy.home / ".update_exit_code"
    assert (code.read_text().strip() if code.exists() else None) == told


@attrs.define
class Forgetful(ToyFleet):
    """Accounts for nobody, as the real one does for whoever kept its process."""

    async def account(
        self, before: Fleet, failed: Mapping[int, str], deferred: Mapping[int, str]
    ) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {"kind": one.kind, "profile": one.profile, "pid": one.pid, "outcome": "unaccounted"}
            for one in before.runtimes
        )


async def test_who_ran_the_new_code_already_is_not_called_unaccounted(toy: Toy) -> None:
    fleet = Forgetful(
        (gateway("default", toy.home, 11, NEW), gateway("alpha", toy.home / "profiles/alpha", 12, NEW))
    )
    fleet.failing = frozenset({"alpha"})
    half = completion(toy.home, fleet)
    (rows,) = [event async for event in half.events() if isinstance(event, RuntimeOutcomes)]
    assert [(row["profile"], row["outcome"]) for row in rows.rows] == [
        ("default", "current"),
        ("alpha", "unaccounted"),
    ]
    assert "default" not in rows.copy_terminal
    assert "alpha" in rows.copy_terminal, "whose new code is not proven stays loud"
