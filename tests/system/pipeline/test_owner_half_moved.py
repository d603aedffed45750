"""A sealed update that died while it brought the owner's checkout forward (crash harness, sealed seed 26027): what it left is no edit."""

from __future__ import annotations

import pytest

from nedura.testing.installs import git
from nedura.update.source.move_marker import MARKER, MoveMarker, write_marker
from tests.kits.site import World, world


def cut_off(here: World, target: str) -> None:
    """The checkout as a fast-forward leaves it that is killed between two files: its marker, one new file, HEAD where it was."""
    checkout = here.site.checkout
    git(checkout, "fetch", "-q", "origin")
    branch = git(checkout, "symbolic-ref", "HEAD").strip()
    pre = git(checkout, "rev-parse", "HEAD").strip()
    write_marker(str(checkout / ".git"), MoveMarker(2**22 - 7, "1.000", pre, target, ref=branch))
    (checkout / "nedura/_note.py").write_text("NOTE = 2\n")


@pytest.mark.timeout(150)
def test_a_fast_forward_that_was_cut_off_is_not_taken_for_an_edit() -> None:
    with world() as here:
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "one")
        assert here.update()[0] == 0
        cut_off(here, here.site.origin.commit({"nedura/_note.py": "NOTE = 2\n"}, "two"))
        newest = here.site.origin.commit({"nedura/_note.py": "NOTE = 3\n"}, "three")
        code, events = here.update()
        assert code == 0, events[-1]
        assert not here.latest()["user_action"]
        assert not (here.site.checkout / ".git" / MARKER).exists()
        assert git(here.site.checkout, "rev-parse", "HEAD").strip() == newest
        assert git(here.site.checkout, "status", "--porcelain") == ""
        assert (here.site.paths.current / "tree/nedura/_note.py").read_text() == "NOTE = 3\n"
