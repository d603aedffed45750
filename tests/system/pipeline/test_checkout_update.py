"""A checkout install is updated in place by its own command; the old process never imports what it pulled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kits.checkout import CheckoutWorld, checkout_world
from tests.system.pipeline.test_real_update import recording


def run_update(here: CheckoutWorld, *args: str) -> tuple[int, int, list[dict[str, object]]]:
    """Exit code, pid and events of an update."""
    out = here.folder / "out"
    with out.open("wb") as log:
        process = subprocess.Popen(
            [str(here.site.launcher), "update", "--json", *args],
            env=here.environ,
            cwd=here.folder,
            stdout=log,
            stderr=log,
        )
        code = process.wait(140)
    return (
        code,
        process.pid,
        [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")],
    )


@pytest.mark.timeout(300)
def test_a_live_checkout_moves_in_place_and_the_old_process_imports_nothing_of_it(tmp_path: Path) -> None:
    place = tmp_path / "record"
    with checkout_world() as here:
        here.start("default")
        before = here.pids(["default"])
        (here.tree / "nedura/local_edit.py").write_text("MINE = 1\n")
        new = here.site.origin.commit(recording(place), "a version that records who imports it")
        code, parent, events = run_update(here)
        assert code == 0, str(events[-1])
        assert here.head == new
        assert (here.tree / "nedura/local_edit.py").read_text() == "MINE = 1\n"
        assert here.pids(["default"]) != before
        assert here.state("default")["code_sha"] == new
        receipt = here.latest()
        assert (receipt["outcome"], receipt["layout"]) == ("success", "checkout")
        assert [row["state"] for row in receipt["fleet"]] == ["current"]
        records = [line.split(" ", 2) for line in place.read_text().splitlines()]
        moved = [int(pid) for pid, name, where in records if str(here.tree) in where]
        assert moved, "new processes run the new tree"
        assert parent not in {int(pid) for pid, _, _ in records}
        code, _, events = run_update(here)
        assert (code, events[-1]["changed"]) == (0, False)


@pytest.mark.timeout(200)
def test_an_old_process_that_imports_from_the_moved_tree_is_stopped_and_finished() -> None:
    """Lazy imports forced after the move: a stand-in for an old release calls the frozen names of the new tree."""
    with checkout_world() as here:
        here.start("default")
        new = here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        subprocess.run(["git", "pull", "-q", "--ff-only"], cwd=here.tree, check=True)
        assert here.head == new
        python = here.folder / "venv/bin/python"
        code = (
            "import os, sys\n"
            "class Options: yes = True; gateway_mode = False; no_gateway_restart = False\n"
            "class Before: code_sha = 'a' * 40\n"
            "class Run:\n    run_id = 'cafe' * 8; options = Options(); snapshots = {}; before = Before(); lock_fds = ()\n"
            f"    root_home = home = {str(here.home)!r}\n"
            "def old(run):\n    from nedura import update_handoff\n    update_handoff.continue_update_in_fresh_interpreter({})\n"
            "    print('WENT ON')\nold(Run())\n"
        )
        done = subprocess.run(
            [str(python), "-c", code],
            env=here.environ,
            cwd=here.folder,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "WENT ON" not in done.stdout
        receipt = here.latest()
        assert (receipt["update_id"], receipt["outcome"]) == ("cafe" * 8, "success")
        assert here.state("default")["code_sha"] == new


@pytest.mark.timeout(120)
def test_a_torn_checkout_is_put_back_at_the_next_launch() -> None:
    with checkout_world() as here:
        old = here.head
        new = here.site.origin.commit({"nedura/_version.py": '"""."""\n\n__version__ = "9.9.9"\n'}, "newer")
        subprocess.run(["git", "fetch", "-q"], cwd=here.tree, check=True)
        (here.tree / "nedura/_version.py").write_text(
            '"""."""\n\n__version__ = "9.9.9"\n'
        )  # git had written this far
        git = subprocess.run(
            ["sh", "-c", "command -v git"], capture_output=True, text=True, check=True
        ).stdout.strip()
        (here.tree / ".git/nedura-update-pull").write_text(
            f"pid=4194301\ncreate_time=1.000\npre={old}\ntarget={new}\nref=refs/heads/main\ngit={git}\n"
        )
        done = here.command("fleet", "status")
        assert done.returncode == 0, done.stderr
        assert here.head == old
        assert "9.9.9" not in (here.tree / "nedura/_version.py").read_text()
        assert not (here.tree / ".git/nedura-update-pull").exists()
