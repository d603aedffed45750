"""An unpacked release updates itself from its publisher: a real server, a live gateway, and a way back."""

from __future__ import annotations

import pytest

from nedura.testing.installs import Content
from tests.kits.release import release_world
from tests.kits.site import quick_tree


def files(version: str, extra: dict[str, Content] | None = None) -> dict[str, Content]:
    """This code as another version."""
    text = f'"""The one place that names the version."""\n\n__version__ = "{version}"\n'
    return {**quick_tree(), "nedura/_version.py": text, **(extra or {})}


@pytest.mark.timeout(200)
def test_a_live_release_is_swapped_and_goes_back() -> None:
    with release_world(files("1.0.0")) as here:
        here.start("default")
        before = here.pids(["default"])
        old = here.state("default")["code_sha"]
        new = here.shelf.publish(files("1.1.0", {"nedura/brought.py": "HERE = 1\n"}), "1.1.0")
        plan = here.command("update", "--plan")
        assert "zip" in plan.stdout, plan.stdout + plan.stderr
        assert f"Updates come from {here.shelf.url}/latest.json" in plan.stdout
        assert "(zip)" in here.command("--version", "-v").stdout
        check = here.command("update", "--check")
        assert "1.1.0" in check.stdout, check.stdout + check.stderr
        code, events = here.update()
        assert code == 0, str(events[-3:])
        assert (here.tree / "nedura/brought.py").read_text() == "HERE = 1\n"
        state = here.state("default")
        assert (state["code_sha"], state["code_version"]) == (new.commit, "1.1.0")
        assert here.pids(["default"]) != before
        receipt = here.latest()
        assert (receipt["outcome"], receipt["layout"], receipt["followups"]) == ("success", "zip", [])
        assert [row["state"] for row in receipt["fleet"]] == ["current"]
        assert receipt["post_update"]["sha"] == new.commit
        left = sorted(path.name for path in here.site.paths.folder.iterdir())
        assert "release" not in left, "what was swapped in needs no stage any more"
        code, events = here.update()
        assert (code, events[-1]["changed"]) == (0, False)
        asked = list(here.shelf.asked)
        code, events = here.update("--rollback")
        assert code == 0, str(events[-3:])
        assert not (here.tree / "nedura/brought.py").exists()
        assert here.state("default")["code_sha"] == old
        assert here.shelf.asked == asked, "the way back needs no network"
