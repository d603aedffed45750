"""A follow-up of a real update: owed by every reader, tried again by a launch and by the next update, gone once it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.kits.site import World, world

OWED = ["profile_sync"]


@attrs.define
class Scene:
    """A world with a profile in which a step of the completion cannot work."""

    here: World

    @property
    def place(self) -> Path:
        return self.here.home_of("alpha") / "workspace"

    @property
    def armed(self) -> bool:
        return (self.here.site.paths.folder / "source-completion-pending").exists()

    def spoil(self) -> None:
        self.place.rmdir()
        self.place.write_text("a file where a folder belongs")

    def mend(self) -> None:
        self.place.unlink()

    def publish(self, number: int) -> None:
        self.here.site.origin.commit({"nedura/_note.py": f"NOTE = {number}\n"}, f"version {number}")

    def update(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run it; the last event, whose follow-ups must be those of the receipt."""
        found, events = self.here.update(*words)
        last = events[-1]
        assert found == code, last
        told = [event["step"] for event in events if event["kind"] == "follow_up"]
        assert told == last["followups"], "each is told once, as it happens"
        receipt = self.here.latest()
        assert [row["step"] for row in receipt["followups"]] == last["followups"]
        assert (receipt["outcome"], receipt["exit_code"]) == ("success", code)
        return last

    def launch(self) -> str:
        done = self.here.command("fleet", "status")
        assert done.returncode == 0
        return done.stderr


@pytest.mark.timeout(150)
def test_a_failed_follow_up_is_owed_until_a_launch_or_an_update_makes_it() -> None:
    with world() as here:
        here.start("default")
        assert here.command("profile", "create", "alpha").returncode == 0
        scene = Scene(here)
        scene.spoil()
        scene.publish(1)
        last = scene.update("--no-probe")
        assert (last["followups"], last["changed"]) == (OWED, True)
        assert scene.armed
        assert here.current == "000002"
        assert "not finished" in scene.launch(), "the launch tried, and says that it is owed still"
        assert scene.armed
        last = scene.update("--strict", code=3)
        assert (last["followups"], last["changed"]) == (OWED, False), "already up to date, and not done"
        assert scene.armed
        scene.mend()
        before = here.pids(["default"])
        last = scene.update()
        assert (last["followups"], last["changed"]) == ([], False)
        assert not scene.armed
        assert scene.place.is_dir()
        assert here.pids(["default"]) == before, "what is owed to a profile restarts nobody"
        _a_launch_finishes_it(scene)


def _a_launch_finishes_it(scene: Scene) -> None:
    """The second way: the next version's follow-up is made by a plain launch, with a receipt of its own."""
    scene.spoil()
    scene.publish(2)
    assert scene.update("--no-probe")["followups"] == OWED
    scene.mend()
    known = len(scene.here.receipts())
    told = scene.launch()
    assert told.count("\n") == 1
    assert "finishing what the last update left" in told
    assert not scene.armed
    assert scene.place.is_dir()
    receipts = scene.here.receipts()
    assert len(receipts) == known + 1
    assert (receipts[-1]["outcome"], receipts[-1]["followups"]) == ("success", [])
    assert scene.launch() == ""
