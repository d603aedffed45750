"""The deliberate way back: to a generation that is still kept, through the same pipeline, with its own receipt."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.kits.checkout import checkout_world
from tests.kits.site import World, quick_tree, world


@pytest.mark.timeout(150)
def test_rollback_returns_to_the_generation_before_and_forward_again() -> None:
    with world() as here:
        here.start("default")
        old = here.site.origin.head
        new = here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, _ = here.update("--no-probe")
        assert code == 0
        moved = here.latest()["update_id"]
        assert here.state("default")["code_sha"] == new
        code, events = here.update("--rollback", moved[:8], "--no-probe")
        assert code == 0, events[-1]
        assert here.current == "000001"
        assert here.state("default")["code_sha"] == old
        receipt = here.latest()
        assert (receipt["outcome"], receipt["post_update"]["sha"]) == ("success", old)
        assert (receipt["went_behind"], receipt["restored"]) == (moved, "")
        assert "✓ Went back to " in events[-1]["copy_terminal"]
        assert f"the code before run {moved[:8]}; state stays as it is." in events[-1]["copy_terminal"]
        assert "Updated to" not in (here.home / "logs/update.log").read_text().splitlines()[-1]
        assert any(step["name"] == "verify_generation" for step in receipt["steps"])
        (source,) = [step["detail"] for step in receipt["steps"] if step["name"] == "source"]
        assert source == "left: it is ahead of what runs now"
        told = "\n".join(event["copy_terminal"] for event in events)
        for false in ("Updating install", "new version", "New code"):
            assert false not in told, f"{false!r} of a way back"
        code, events = here.update("--no-probe")
        assert code == 0, events[-1]
        assert here.state("default")["code_sha"] == new
        code, events = here.update("--rollback", "not-a-receipt")
        assert code != 0
        assert here.state("default")["code_sha"] == new


@pytest.mark.timeout(90)
def test_a_generation_that_is_gone_or_damaged_is_refused_by_name() -> None:
    with world(quick_tree({"nedura/_note.py": "NOTE = 0\n"})) as here:
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, _ = here.update("--no-probe")
        assert code == 0
        victim = here.site.paths.generations / "000001/tree/nedura/_note.py"
        victim.chmod(0o644)
        victim.write_text(
            "tampered = 1\n"
        )  # a file of its own: what is unchanged is one file in both generations
        code, events = here.update("--rollback", "--no-probe")
        assert (code, events[-1]["stop_class"]) == (1, "damaged_generation")
        assert "_note.py" in events[-1]["stop_reason"]
        assert here.current == "000002"
        shutil.rmtree(here.site.paths.generations / "000001")
        code, events = here.update("--rollback", "--no-probe")
        assert (code, events[-1]["stop_class"]) == (1, "not_kept")
        assert "snapshot" not in [event.get("stage") for event in events], "told before anything was copied"


def state_of(here: World, low: int, high: int) -> dict[str, bytes]:
    """A tree that states other levels of stored state."""
    text = (here.site.checkout / "pyproject.toml").read_text()
    known = "[tool.nedura.state]  # levels of stored state that this version reads; it writes the newest\nmin = 1\nmax = 1\n"
    assert known in text
    return {
        "pyproject.toml": text.replace(known, f"[tool.nedura.state]\nmin = {low}\nmax = {high}\n").encode()
    }


@pytest.mark.timeout(150)
def test_state_comes_back_from_the_full_backup_alone_and_only_on_request() -> None:
    with world() as here:
        config = here.home / "config.yaml"
        config.write_text("model:\n  default: before\n")
        here.site.origin.commit(state_of(here, 1, 2), "writes state of level 2")
        code, events = here.update("--no-probe", "--backup")
        assert code == 0, events[-1]
        moved = str(here.latest()["update_id"])
        assert json.loads((here.site.paths.current / "identity.json").read_text())["state_max"] == 2
        config.write_text("model:\n  default: after\n")
        code, events = here.update("--rollback", moved, "--no-probe")
        assert (code, events[-1]["stop_class"]) == (2, "state_incompatible")
        here.start("default")
        code, events = here.update("--rollback", moved, "--with-backup", "--no-probe")
        assert (code, events[-1]["stop_class"]) == (2, "members_running")
        assert here.current == "000002"
        assert "default: after\n" in config.read_text()
        stopped = here.command("gateway", "stop")
        assert stopped.returncode == 0, stopped.stderr
        here.started.pop().wait(20)
        code, events = here.update("--rollback", moved, "--with-backup", "--no-probe")
        assert code == 0, events[-1]
        assert here.current == "000001"
        assert "default: before\n" in config.read_text(), "no quick snapshot may undo it"
        receipt = here.latest()
        (step,) = [step for step in receipt["steps"] if step["name"] == "state_restored"]
        assert "pre-update-" in step["detail"]
        assert f"; state restored: {step['detail']}" in events[-1]["copy_terminal"]
        code, events = here.update("--rollback", str(receipt["update_id"]), "--with-backup", "--no-probe")
        assert (code, events[-1]["stop_class"]) == (2, "no_full_backup")


@pytest.mark.timeout(200)
def test_a_checkout_goes_back_to_the_recorded_commit_with_its_local_edits_and_forward_again() -> None:
    with checkout_world(quick_tree({"nedura/_note.py": "NOTE = 0\n"})) as here:
        here.start("default")
        old = here.head
        new = here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        (here.tree / "nedura/local_edit.py").write_text("MINE = 1\n")
        code, events = here.update("--no-probe")
        assert code == 0, events[-1]
        assert here.head == new
        moved = str(here.latest()["update_id"])
        code, events = here.update("--rollback", moved[:8], "--no-probe")
        assert code == 0, events[-1]
        assert here.head == old
        assert (here.tree / "nedura/_note.py").read_text() == "NOTE = 0\n"
        assert (here.tree / "nedura/local_edit.py").read_text() == "MINE = 1\n"
        assert (here.tree / ".git/HEAD").read_text() == "ref: refs/heads/main\n"
        assert here.state("default")["code_sha"] == old
        receipt = here.latest()
        assert (receipt["outcome"], receipt["update_id"] != moved) == ("success", True)
        assert any(step["name"] == "recorded_commit" for step in receipt["steps"])
        assert f"the code before run {moved[:8]}; state stays" in events[-1]["copy_terminal"]
        code, events = here.update("--no-probe")
        assert code == 0, events[-1]
        assert (here.head, here.state("default")["code_sha"]) == (new, new)
