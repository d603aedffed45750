"""The deliberate way back: to a generation that is still kept, through the same pipeline, with its own receipt."""

from __future__ import annotations

import pytest

from tests.kits.site import quick_tree, world


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
        assert any(step["name"] == "verify_generation" for step in receipt["steps"])
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
