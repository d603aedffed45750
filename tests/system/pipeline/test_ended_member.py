"""A gateway that somebody ended by a plain SIGTERM before the update: it is nobody's debt, and nobody waits two minutes for it."""

from __future__ import annotations

import json
import signal

import psutil
import pytest

from tests.kits.site import world


@pytest.mark.timeout(110)
def test_a_gateway_that_was_ended_by_hand_does_not_hold_up_the_next_update() -> None:
    with world() as here:
        here.start("default", "alpha")
        ended = psutil.Process(here.pids(["alpha"])["alpha"])
        ended.send_signal(signal.SIGTERM)
        here.started[1].wait(20)
        assert here.state("alpha")["gateway_state"] == "running", (
            "its file claims to run: a manager would revive it"
        )
        plan = here.command("update", "--plan", "--deadline", "77", "--json")
        told = json.loads(plan.stdout)
        assert (told["deadline_s"], told["deadline_given"]) == (77, True)
        assert "in all 77 s (--deadline)" in told["copy_terminal"]
        assert here.command("update", "--plan", "--deadline", "0").returncode == 2
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, events = here.update("--deadline", "77")
        assert code == 0, events[-1]
        assert events[-1]["followups"] == []
        assert not [event for event in events if event["kind"] == "verify_waiting"]
        receipt = here.latest()
        assert receipt["plan"]["deadline_s"] == 77
        assert [(row["profile"], row["state"]) for row in receipt["fleet"]] == [("default", "current")]
        assert not any((here.folder / "locks").glob("host-update-restart-*"))
        assert here.command("fleet", "status").stderr == ""
