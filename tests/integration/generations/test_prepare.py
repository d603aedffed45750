"""Prepare, validate and commit of a sealed install, with real git and real processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.installs import read_identity
from nedura.testing.installs import git
from nedura.update.commit.sealed import commit_sealed, take_back
from nedura.update.generation.generations import read_manifest, verify_generation
from tests.kits.sealed import Stages


async def test_an_update_moves_to_the_new_commit(stages: Stages) -> None:
    wanted = stages.site.origin.commit({"toy/value.py": "VALUE = 22\n", "toy/new.py": "A = 1\n"})
    run = await stages.update()
    assert run.changed
    assert run.candidate is not None
    assert run.candidate.identity.code_sha == wanted
    assert stages.site.run().stdout.splitlines()[0] == "22"
    assert stages.told("prepared")[0].commits == 1


async def test_nothing_new_is_already_up_to_date(stages: Stages) -> None:
    run = await stages.prepare()
    assert not run.changed
    assert run.candidate is not None
    assert run.candidate.folder.name == "000001"
    assert os.listdir(stages.site.paths.generations) == ["000001"]


async def test_unchanged_files_and_their_bytecode_are_linked(stages: Stages) -> None:
    stages.site.origin.commit({"toy/value.py": "VALUE = 3\n"})
    await stages.update()
    old, new = (stages.site.paths.generations / name / "tree/toy" for name in ("000001", "000002"))
    (pyc,) = [p.name for p in (new / "__pycache__").iterdir() if p.name.startswith("main.")]
    linked = {
        name: (old / name).stat().st_ino == (new / name).stat().st_ino
        for name in ("main.py", f"__pycache__/{pyc}", "value.py")
    }
    assert list(linked.values()) == [True, True, False]


async def test_a_damaged_current_generation_is_replaced_even_without_news(stages: Stages) -> None:
    file = stages.site.paths.generations / "000001/tree/toy/value.py"
    file.chmod(0o644)
    file.write_text("VALUE = 666\n")
    assert stages.site.run().stdout.splitlines()[0] == "666"
    run = await stages.update()
    assert run.changed
    assert stages.site.run().stdout.splitlines()[0] == "1"
    assert any("toy/value.py" in event.text for event in stages.told("notice"))


async def test_a_failed_prepare_leaves_nothing(stages: Stages) -> None:
    before = stages.site.paths.current.readlink()
    stages.site.origin.commit({"toy/-rf": "x"})
    with pytest.raises(UpdateError, match="looks like an option"):
        await stages.prepare()
    assert stages.site.paths.current.readlink() == before
    assert os.listdir(stages.site.paths.generations) == ["000001"]
    leftovers = [name for name in os.listdir(stages.site.paths.folder) if name.startswith(".tmp")]
    assert leftovers == []


async def test_a_version_that_does_not_import_is_refused_and_remembered(stages: Stages) -> None:
    stages.site.origin.commit({"toy/main.py": "import nothing_of_that_name\n"})
    with pytest.raises(UpdateError, match="does not import"):
        await stages.update()
    assert stages.site.run().stdout.splitlines()[0] == "1"
    with pytest.raises(UpdateError, match="failed here before") as caught:
        await stages.update()
    assert caught.value.stop_class == "failed_before"
    with pytest.raises(UpdateError, match="does not import"):
        await stages.update(retry=True)
    stages.site.origin.commit({"toy/main.py": "print('well')\n"})
    await stages.update()
    assert stages.site.run().stdout == "well\n"


@pytest.mark.parametrize("fault", ["os.kill(os.getpid(), 9)", "raise OSError(28, 'No space left on device')"])
async def test_a_check_that_the_machine_ended_condemns_no_version(
    stages: Stages, tmp_path: Path, fault: str
) -> None:
    """Found by the crash harness (checkout seed 36326): the kernel ends the biggest process, and updates were refused for good."""
    short = tmp_path / "memory-is-short"
    short.touch()
    stages.site.origin.commit(
        {"toy/main.py": f"import os\nif os.path.exists({str(short)!r}): {fault}\nprint('well')\n"}
    )
    for _ in range(2):
        with pytest.raises(UpdateError, match=r"was ended by SIGKILL|does not import"):
            await stages.update()
    short.unlink()
    await stages.update()
    assert stages.site.run().stdout == "well\n"


async def test_take_back_is_the_old_generation_again(stages: Stages) -> None:
    stages.site.origin.commit({"toy/value.py": "VALUE = 4\n"})
    run = await stages.update()
    take_back(stages.site.paths, run.previous)
    assert stages.site.run().stdout.splitlines()[0] == "1"
    assert run.candidate is not None
    commit_sealed(stages.site.paths, run.candidate)
    assert stages.site.run().stdout.splitlines()[0] == "4"


async def test_local_edits_travel(stages: Stages) -> None:
    source = stages.site.checkout
    (source / "toy/main.py").write_text("print('mine')\n")
    (source / "toy/extra.py").write_text("E = 1\n")
    (source / ".gitignore").write_text("__pycache__/\n*.pyc\nsecret.txt\n")
    (source / "secret.txt").write_text("no")
    stages.site.origin.commit({"toy/value.py": "VALUE = 5\n"})
    before = _fingerprint(source)
    run = await stages.update()
    assert stages.site.run().stdout == "mine\n"
    assert run.candidate is not None
    tree = run.candidate.tree
    assert (tree / "toy/value.py").read_text() == "VALUE = 5\n"
    assert (tree / "toy/extra.py").exists()
    assert not (tree / "secret.txt").exists()
    manifest = read_manifest(run.candidate.folder)
    assert set(manifest.edits) == {"toy/main.py", "toy/extra.py", ".gitignore"}
    assert verify_generation(run.candidate.folder) == []
    assert manifest.identity.tree_hash != git(source, "rev-parse", "HEAD^{tree}")
    assert _fingerprint(source) == before


def _fingerprint(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if "objects" in path.parts:  # git renews the time stamp of a pack it still needs
            continue
        info = path.lstat()
        found[str(path)] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


async def test_conflicting_edits_are_left_out_and_named(stages: Stages) -> None:
    source = stages.site.checkout
    (source / "toy/value.py").write_text("VALUE = 100\n")
    (source / "toy/main.py").write_text("from toy.value import VALUE\nprint('mine', VALUE)\n")
    stages.site.origin.commit({"toy/value.py": "VALUE = 6\n"})
    for attempt in range(3):
        run = await stages.update()
        assert run.changed is (attempt == 0)
        assert run.candidate is not None
        assert run.candidate.parked == ("toy/value.py",)
        (action,) = stages.told("user_action")
        assert action.step == "local_changes"
        assert "toy/value.py" in action.reason
    assert stages.site.run().stdout == "mine 6\n"
    assert (source / "toy/value.py").read_text() == "VALUE = 100\n"
    parked = git(stages.site.paths.repo, "for-each-ref", "refs/nedura/parked/")
    assert len(parked.splitlines()) == 1
    assert parked.split()[0] in action.reason


async def test_a_source_that_is_gone_still_updates(stages: Stages, tmp_path: Path) -> None:
    stages.site.checkout.rename(tmp_path / "elsewhere")
    stages.site.origin.commit({"toy/value.py": "VALUE = 7\n"})
    await stages.update()
    assert any("checkout is gone" in event.text for event in stages.told("notice"))
    assert stages.site.run().stdout.splitlines()[0] == "7"


async def test_a_downgrade_needs_to_be_asked_for(stages: Stages) -> None:
    first = stages.site.origin.head
    stages.site.origin.commit({"toy/value.py": "VALUE = 8\n"})
    await stages.update()
    git(stages.site.origin.folder, "reset", "-q", "--hard", first)
    with pytest.raises(UpdateError, match="older than what runs") as caught:
        await stages.update()
    assert caught.value.stop_class == "downgrade"
    await stages.update(allow_downgrade=True)
    assert stages.site.run().stdout.splitlines()[0] == "1"


async def test_a_rewritten_branch_is_said(stages: Stages) -> None:
    git(stages.site.origin.folder, "commit", "-q", "--amend", "-m", "another first")
    stages.site.origin.commit({"toy/value.py": "VALUE = 9\n"})
    await stages.update()
    assert any("rewritten" in event.text for event in stages.told("notice"))
    assert read_identity(stages.site.paths.current.resolve()).code_sha == stages.site.origin.head
