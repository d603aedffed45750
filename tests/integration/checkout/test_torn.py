"""A killed move: every launch mends the tree, edits stay, and the mender works when the tree's own code is torn."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nedura
from nedura.update.commit.move import Move, move
from nedura.update.commit.recovery_copy import publish, published
from nedura.update.source.move_marker import MARKER, MoveMarker, read_marker, write_marker
from nedura.update.source.torn import LOCK, MODULES, TornError, is_torn, mend
from tests.integration.checkout.trees import FILES, Tree, make_tree

SOURCE = Path(nedura.__file__).parents[1]
MOVER = (
    "import sys\n"
    "from nedura.update.source.source_git import SourceGit\n"
    "from nedura.update.commit.move import Move, move\n"
    "program, checkout, git_dir, pre, target = sys.argv[1:6]\n"
    "print('go', flush=True)\n"
    "move(SourceGit(program, checkout, git_dir), Move(pre=pre, target=target, branch='main', was_branch='main'))\n"
)


def many(tag: str, count: int = 120) -> dict[str, str | None]:
    return {f"pkg/d{n % 10}/m{n}.py": f"VALUE = {tag!r}\n" + "# filler\n" * 200 for n in range(count)}


def write_dead_marker(tree: Tree, pre: str, target: str, **changes: Any) -> None:
    marker = MoveMarker(pid=2**22 - 3, create_time="1.000", pre=pre, target=target, ref="refs/heads/main")
    write_marker(tree.runner().git_dir, marker._replace(**changes))


def half_moved(tmp_path: Path) -> tuple[Tree, str, str]:
    """A tree as a killed move leaves it: some paths new, one half written, one gone, the index and HEAD old."""
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit(
        {
            "toy/value.py": "VALUE = 2\n# more\n",
            "toy/main.py": "print('two')\n",
            "old.txt": None,
            "new/a.txt": "a\n",
            "README": "two\n" * 40,
        }
    )
    target = tree.fetch()
    root = tree.checkout
    (root / "toy/value.py").write_text("VALUE = 2\n# more\n")
    (root / "README").write_text("two\n" * 7)
    (root / "old.txt").unlink()
    (root / "toy/main.py").unlink()
    (root / "new").mkdir()
    (root / "new/a.txt").write_text("")
    (root / ".git/index.lock").touch()
    write_dead_marker(tree, pre, target)
    return tree, pre, target


def test_every_path_that_git_wrote_goes_back(tmp_path: Path) -> None:
    tree, pre, _ = half_moved(tmp_path)
    assert is_torn(str(tree.checkout))
    mended = mend(str(tree.checkout))
    assert mended.action == "put_back"
    assert mended.relaunch
    assert tree.head == pre
    assert tree.status == []
    assert not (tree.checkout / "new").exists()
    for name, content in FILES.items():
        assert (tree.checkout / name).read_text() == content
    assert not is_torn(str(tree.checkout))
    assert mend(str(tree.checkout)).action == "none"


def test_an_edit_made_after_the_crash_stays(tmp_path: Path) -> None:
    tree, pre, _ = half_moved(tmp_path)
    (tree.checkout / "toy/value.py").write_text("VALUE = 'typed after the crash'\n")
    (tree.checkout / "notes.txt").write_text("mine\n")
    mend(str(tree.checkout))
    assert tree.head == pre
    assert sorted(tree.status) == [" M toy/value.py", "?? notes.txt"]
    assert "typed" in (tree.checkout / "toy/value.py").read_text()


def test_a_made_move_is_completed_after_a_power_cut(tmp_path: Path) -> None:
    """HEAD is the target, and files lost their content because nobody had made them durable."""
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit({"toy/value.py": "VALUE = 2\n", "new.txt": "new\n"})
    target = tree.fetch()
    tree.git("merge", "-q", "--ff-only", target)
    (tree.checkout / "toy/value.py").write_text("")
    (tree.checkout / "new.txt").unlink()
    write_dead_marker(tree, pre, target)
    assert mend(str(tree.checkout)).action == "completed"
    assert tree.head == target
    assert tree.status == []


@pytest.mark.parametrize(("rollback", "branch"), [("branch", "main"), ("detach", "")])
def test_an_interrupted_rollback_goes_on(tmp_path: Path, rollback: str, branch: str) -> None:
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit({"toy/value.py": "VALUE = 2\n"})
    target = tree.fetch()
    tree.git("merge", "-q", "--ff-only", target)
    write_dead_marker(tree, pre, target, rollback=rollback)
    mend(str(tree.checkout))
    assert (tree.head, tree.branch, tree.status) == (pre, branch, [])


def test_a_live_owner_is_waited_for_by_nobody(tmp_path: Path) -> None:
    from nedura.update.ledger.owner import myself

    tree, pre, target = half_moved(tmp_path)
    me = myself()
    write_dead_marker(tree, pre, target, pid=me.pid, create_time=f"{me.create_time:.3f}")
    assert mend(str(tree.checkout)).action == "busy"
    assert is_torn(str(tree.checkout))
    write_dead_marker(tree, pre, target, pid=me.pid, create_time=f"{me.create_time - 500:.3f}")
    assert mend(str(tree.checkout)).action == "put_back", "the pid is another process now"


def test_a_lock_that_was_there_before_is_somebody_elses(tmp_path: Path) -> None:
    from nedura.update.source.move_marker import lock_identity

    tree, pre, target = half_moved(tmp_path)
    write_dead_marker(tree, pre, target, index_lock=lock_identity(tree.runner().git_dir))
    with pytest.raises(TornError):
        mend(str(tree.checkout))
    assert (tree.checkout / ".git/index.lock").exists()
    assert is_torn(str(tree.checkout))


@pytest.mark.parametrize("name", ["MERGE_HEAD", "rebase-merge"])
def test_a_merge_that_somebody_began_keeps_the_marker(tmp_path: Path, name: str) -> None:
    tree, _, _ = half_moved(tmp_path)
    (tree.checkout / ".git" / name).touch()
    with pytest.raises(TornError, match="merge or rebase"):
        mend(str(tree.checkout))
    assert is_torn(str(tree.checkout))


def test_a_lost_target_retires_the_marker_only_over_a_clean_tree(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    write_dead_marker(tree, tree.head, "f" * 40)
    (tree.checkout / "README").write_text("mine\n")
    with pytest.raises(TornError, match="gone"):
        mend(str(tree.checkout))
    tree.git("checkout", "-q", "README")
    assert mend(str(tree.checkout)).action == "retired"


def test_a_head_that_somebody_moved_on_is_left_alone(tmp_path: Path) -> None:
    tree, _, _ = half_moved(tmp_path)
    (tree.checkout / ".git/index.lock").unlink()
    tree.git("reset", "-q", "--hard")
    mine = tree.commit({"mine.txt": "x"}, where=tree.checkout)
    assert mend(str(tree.checkout)).action == "retired"
    assert (tree.head, tree.status) == (mine, [])


@pytest.mark.parametrize("damage", [b"", b"pid=1\n", b"pid=x\npre=1\ntarget=2\n", b"\xff" * 100])
def test_a_marker_that_makes_no_sense_is_never_no_marker(tmp_path: Path, damage: bytes) -> None:
    tree = make_tree(tmp_path)
    Path(tree.runner().git_dir, MARKER).write_bytes(damage)
    with pytest.raises(TornError):
        mend(str(tree.checkout))
    assert is_torn(str(tree.checkout))


def test_a_planted_marker_link_is_not_followed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    (tmp_path / "precious").write_text("x")
    Path(tree.runner().git_dir, MARKER).symlink_to(tmp_path / "precious")
    with pytest.raises(TornError):
        mend(str(tree.checkout))
    assert (tmp_path / "precious").read_text() == "x"


def test_the_marker_says_what_was_written(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    marker = MoveMarker(
        pid=7, create_time="1.250", pre="a" * 40, target="b" * 40, stash="c" * 40, git="/usr/bin/git"
    )
    write_marker(tree.runner().git_dir, marker)
    assert read_marker(tree.runner().git_dir) == marker
    with pytest.raises(ValueError, match="line end"):
        write_marker(tree.runner().git_dir, marker._replace(ref="refs/heads/a\npid=1"))


def test_concurrent_launches_take_turns(tmp_path: Path) -> None:
    tree, pre, _ = half_moved(tmp_path)
    code = "import sys; from nedura.update.source.torn import mend; print(mend(sys.argv[1]).action)"
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tree.checkout)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = sorted(child.communicate(timeout=30)[0].strip() for child in children)
    assert said == ["none", "none", "none", "put_back"]
    assert (tree.head, tree.status) == (pre, [])


def test_line_ends_that_git_converts_are_recognised(tmp_path: Path) -> None:
    tree, pre, _ = half_moved(tmp_path)
    tree.git("config", "core.autocrlf", "true")
    (tree.checkout / "toy/value.py").write_bytes(b"VALUE = 2\r\n# mo")
    mend(str(tree.checkout))
    assert tree.head == pre
    assert tree.status == []
    assert (tree.checkout / "toy/value.py").read_bytes() == b"VALUE = 1\r\n"


def storm_tree(tmp_path: Path) -> tuple[Tree, str, str]:
    tree = make_tree(tmp_path)
    tree.commit(many("one"))
    tree.git("merge", "-q", "--ff-only", tree.fetch())
    pre = tree.head
    tree.commit({**many("two"), **{f"extra/e{n}.txt": "x" * 3000 for n in range(40)}, "old.txt": None})
    return tree, pre, tree.fetch()


def test_killed_at_any_instant_it_is_old_or_new_after_the_next_launch(tmp_path: Path) -> None:
    """SIGKILL of the mover and its git at random instants; then one `mend`."""
    tree, pre, target = storm_tree(tmp_path)
    seed = random.Random(7)
    outcomes: dict[str, int] = {}
    for _ in range(12):
        runner = tree.runner()
        (tree.checkout / "untracked.txt").write_text("mine\n")
        child = subprocess.Popen(
            [sys.executable, "-c", MOVER, runner.program, runner.checkout, runner.git_dir, pre, target],
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        while not is_torn(str(tree.checkout)) and child.poll() is None:
            time.sleep(0.001)
        time.sleep(seed.uniform(0.0, 0.06))
        git_child = _children(child.pid)
        child.kill()
        for pid in git_child:
            _kill(pid)
        child.wait()
        child.stdout.close()
        time.sleep(0.02)
        action = mend(str(tree.checkout)).action
        outcomes[action] = outcomes.get(action, 0) + 1
        assert not [path.name for path in (tree.checkout / ".git").rglob("*.lock") if path.name != LOCK], (
            action
        )
        assert tree.head in (pre, target)
        assert tree.status == ["?? untracked.txt"], action
        tree.git("reset", "-q", "--hard", pre)
    assert outcomes.get("put_back"), outcomes


def _children(pid: int) -> list[int]:
    try:
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import signal

    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


@pytest.mark.parametrize("when", [2, 150])
def test_git_itself_killed_in_the_move_is_put_back_at_once(tmp_path: Path, when: int) -> None:
    if not Path("/usr/bin/strace").exists():
        pytest.skip("strace is not installed")
    tree, pre, target = storm_tree(tmp_path)
    runner = tree.runner()
    fake = tmp_path / "bin/git"
    fake.parent.mkdir()
    trace = (
        f"strace -qq -o /dev/null -e trace=openat,unlink -e inject=openat,unlink:signal=KILL:when={when + 60}"
    )
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *"read-tree -m"*) exec {trace} {runner.program} "$@";; esac\nexec {runner.program} "$@"\n'
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", MOVER, str(fake), runner.checkout, runner.git_dir, pre, target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "could not be moved" in done.stderr, done.stderr[-500:]
    assert (tree.head, tree.status) == (pre, [])
    assert not is_torn(str(tree.checkout))


def own_tree(tmp_path: Path) -> Tree:
    """A checkout that carries the repair modules, as an install of ours does."""
    files = dict(FILES)
    for name in (*MODULES, "nedura/__init__.py", "nedura/update/__init__.py"):
        files[name] = (SOURCE / name).read_text() if name in MODULES else ""
    return make_tree(tmp_path, files)


def test_the_published_copy_mends_when_the_trees_own_modules_are_torn(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    pre = tree.head
    tree.commit({"toy/value.py": "VALUE = 2\n", **dict.fromkeys(MODULES, "TORN = (\n")})
    target = tree.fetch()
    runner = tree.runner()
    folder = publish(runner, pre)
    assert folder is not None
    for name in MODULES:
        (tree.checkout / name).write_text("TORN = (\n")
    write_dead_marker(tree, pre, target)
    copy = published(Path(runner.git_dir), pre)
    assert copy is not None
    broken = subprocess.run(
        [sys.executable, "-I", "-S", str(tree.checkout / MODULES[-1]), str(tree.checkout)],
        capture_output=True,
        check=False,
    )
    assert broken.returncode != 0, "the trap must be set"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(copy), str(tree.checkout)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "put back" in done.stderr
    assert (tree.head, tree.status) == (pre, [])


def test_only_the_newest_copy_stays_and_a_foreign_tree_has_none(tmp_path: Path) -> None:
    tree = own_tree(tmp_path)
    first = publish(tree.runner(), tree.head)
    assert first is not None
    assert sorted(line.split(" ")[1] for line in (first / "MANIFEST").read_text().splitlines()) == sorted(
        MODULES
    )
    tree.commit({"README": "x"}, where=tree.checkout)
    second = publish(tree.runner(), tree.head)
    assert second is not None
    assert os.listdir(second.parent) == [second.name]
    (tmp_path / "toy").mkdir()
    assert publish(make_tree(tmp_path / "toy").runner(), make_head(tmp_path / "toy")) is None


def make_head(folder: Path) -> str:
    from nedura.testing.installs import git

    return git(folder / "checkout", "rev-parse", "HEAD").strip()


def test_the_mender_needs_the_standard_library_only(tmp_path: Path) -> None:
    for name in MODULES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(tmp_path / MODULES[-1]), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_branch_that_cannot_be_written_is_put_back(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    pre = tree.head
    tree.commit({"toy/value.py": "VALUE = 2\n"})
    target = tree.fetch()
    (tree.checkout / ".git/refs/heads/main.lock").touch()
    from nedura.errors import UpdateError

    with pytest.raises(UpdateError) as caught:
        move(tree.runner(), Move(pre=pre, target=target, branch="main", was_branch="main"))
    (tree.checkout / ".git/refs/heads/main.lock").unlink()
    assert "cannot lock ref" in str(caught.value)
    mend(str(tree.checkout))
    assert (tree.head, tree.status) == (pre, [])
    assert not is_torn(str(tree.checkout))
