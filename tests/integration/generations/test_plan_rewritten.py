"""A history that the remote rewrites: what it withdrew is nobody's own work, however many updates later (decision 41)."""

from __future__ import annotations

import os

from nedura.testing.installs import git
from nedura.update.generation.aftermath import follow_source
from nedura.update.source.repository import open_repository
from nedura.update.source.target import WITHDRAWN_KEPT, withdrawn_tips
from tests.kits.sealed import Stages


def follow(stages: Stages) -> str:
    return follow_source(stages.site.paths, dict(os.environ))


def amend(stages: Stages, text: str) -> None:
    folder = stages.site.origin.folder
    (folder / "toy/value.py").write_text(text)
    git(folder, "commit", "-q", "-a", "--amend", "-m", "another")


async def test_a_withdrawn_commit_never_becomes_the_owners_edit(stages: Stages) -> None:
    """One force-push, and the second update after it ended with partial, exit 1, and so did every later one."""
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n", "toy/withdrawn.py": "BAD = 1\n"})
    await stages.update()
    assert follow(stages).startswith("fast-forwarded")
    (site.origin.folder / "toy/withdrawn.py").unlink()
    amend(stages, "VALUE = 3\n")
    await stages.update()
    assert follow(stages).startswith("left: the remote has withdrawn")
    for value in (4, 5):
        site.origin.commit({"toy/value.py": f"VALUE = {value}\n"})
        await stages.update()
        assert site.run().stdout.splitlines()[0] == str(value)
        assert stages.told("user_action") == []
        assert not (site.paths.current / "tree/toy/withdrawn.py").exists(), "withdrawn code came back"


async def test_own_work_on_top_of_a_withdrawn_commit_is_still_carried(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    follow(stages)
    (site.checkout / "toy/mine.py").write_text("MINE = 1\n")
    git(site.checkout, "add", "toy/mine.py")
    git(site.checkout, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "mine")
    amend(stages, "VALUE = 3\n")
    await stages.update()
    site.origin.commit({"toy/value.py": "VALUE = 4\n"})
    await stages.update()
    assert stages.told("user_action") == []
    assert site.run().stdout.splitlines()[0] == "4"
    assert (site.paths.current / "tree/toy/mine.py").read_text() == "MINE = 1\n"


async def test_a_plain_update_keeps_no_withdrawn_commit_and_many_are_bounded(stages: Stages) -> None:
    site = stages.site
    git_of_ours = open_repository(site.paths, None, dict(os.environ))
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert withdrawn_tips(git_of_ours) == ()
    folder = site.paths.repo / "refs/nedura/withdrawn"
    folder.mkdir(parents=True)
    for number in range(WITHDRAWN_KEPT + 3):
        (folder / f"{number:040x}").write_text(f"{site.origin.head}\n")
        os.utime(folder / f"{number:040x}", (number, number))
    gone = site.origin.head
    amend(stages, "VALUE = 3\n")
    await stages.update()
    kept = sorted(os.listdir(folder))
    assert len(kept) == WITHDRAWN_KEPT
    assert gone in kept
