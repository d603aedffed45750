"""Field reports of area `update.apply` by their ids: the sealed half. What a checkout layout does is in tests/cases/test_checkout.py."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nedura.errors import RefusedError, UpdateError
from nedura.installs import read_identity
from nedura.product import Build
from nedura.programs import child_environment
from nedura.testing.installs import TOY, TOY_FILES, Site, git, make_origin, make_site
from nedura.update.bounded import run_bounded
from nedura.update.generation.generations import read_manifest, verify_generation
from nedura.update.generation.install import install_checkout
from nedura.update.notice import check_and_remember, passive_notice
from nedura.update.source.check import check_for_update
from nedura.update.source.edits import read_edits
from nedura.update.source.git import find_git
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.repository import open_repository
from nedura.update.validation.validate import import_closure
from tests.kits.sealed import Stages


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


@pytest.fixture
def stages(site: Site) -> Stages:
    return Stages(site)


def value(site: Site) -> str:
    return site.run().stdout.splitlines()[0]


def edits_of(site: Site) -> dict[str, str]:
    source = read_source(site.checkout, find_git())
    return dict(read_edits(open_repository(site.paths, source), source, site.paths.folder).files)


async def test_c021_many_colliding_edits_are_kept_once_and_named_each_time(tmp_path: Path) -> None:
    names = [f"toy/m{i:02}.py" for i in range(43)]
    stages = Stages(make_site(tmp_path, {**TOY_FILES, **dict.fromkeys(names, "A = 1\n")}))
    site = stages.site
    for name in names:
        with open(site.checkout / name, "a", encoding="utf-8") as file:
            file.write("B = 'mine'\n")
    wanted = site.origin.commit(dict.fromkeys(names, "A = 1\nB = 'theirs'\n"))
    for _ in range(3):
        run = await stages.update()
        assert run.candidate is not None
        assert len(run.candidate.parked) == 43
        (action,) = stages.told("user_action")
        kept = git(
            site.paths.repo, "for-each-ref", "--format=%(objectname)", "refs/nedura/parked/"
        ).splitlines()
        assert len(kept) == 1
        assert kept[0] in action.reason
    assert check_for_update(site.home, site.product, dict(os.environ)).state == "current"
    assert read_identity(site.paths.current.resolve()).code_sha == wanted
    assert len(git(site.checkout, "status", "--porcelain").splitlines()) == 43


async def test_c024_own_commits_on_a_shallow_clone_are_not_behind(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    origin.commit({"toy/value.py": "VALUE = 2\n"})
    shallow = origin.clone(tmp_path / "source", "--depth", "1")
    (shallow / "toy/own.py").write_text("MINE = 1\n")
    git(shallow, "add", "-A")
    git(shallow, "commit", "-q", "-m", "mine")
    home = tmp_path / "home"
    done = install_checkout(shallow, home, product=TOY, environment="none")
    found = check_for_update(home, TOY, dict(os.environ))
    assert (found.state, found.commits, found.ahead) == ("current", 0, 1)
    from nedura.installs import InstallPaths

    site = Site(
        origin=origin, checkout=shallow, home=home, paths=InstallPaths(home, done.install_id), product=TOY
    )
    run = await Stages(site).prepare()
    assert not run.changed, "own commits are no rewind of the remote"


async def test_c025_no_marker_reaches_a_tree_and_nobody_is_asked(stages: Stages) -> None:
    site = stages.site
    (site.checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    site.origin.commit({"toy/value.py": "VALUE = 'theirs'\n"})
    run = await stages.update(gateway_mode=True)
    assert run.candidate is not None
    tree = run.candidate.tree
    assert not any(b"<<<<<<<" in path.read_bytes() for path in tree.rglob("*.py"))
    assert compileall.compile_dir(str(tree), quiet=2, force=False)
    (action,) = stages.told("user_action")
    assert "toy/value.py" in action.reason
    assert (site.checkout / "toy/value.py").read_text() == "VALUE = 'mine'\n"


async def test_c029_a_hollow_package_is_found_before_the_commit(stages: Stages, tmp_path: Path) -> None:
    """A folder that holds bytecode alone imports as a namespace package without its attributes."""
    packages = tmp_path / "packages"
    (packages / "yaml/__pycache__").mkdir(parents=True)
    plain = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(packages)!r}); import yaml; print(hasattr(yaml, 'SafeDumper'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert plain.stdout == "False\n", "the trap: the import works"
    site = stages.site
    site.origin.commit(
        {"toy/main.py": "import sys\nsys.path.insert(0, " + repr(str(packages)) + ")\nimport yaml\n"}
    )
    with pytest.raises(UpdateError, match="not complete: yaml"):
        await stages.update()
    assert value(site) == "1"


async def test_c031_one_recorded_interpreter_is_used_throughout(stages: Stages) -> None:
    """A broken second name in the environment concerns nobody: launcher, validation and members use one recorded path."""
    site = stages.site
    venv = site.paths.generations / "000001/venv/bin"
    venv.chmod(0o755)
    (venv / "python3").symlink_to("/nonexistent/python3")
    assert value(site) == "1"
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert import_closure(run.candidate, site.product, site.paths) > 0
    assert value(site) == "2"


async def test_c038_an_unwritable_repository_is_named_before_anything(stages: Stages) -> None:
    """Ours lies in the home; the owner's objects are only read, so a folder of root's there stops nothing."""
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    before = {path: path.stat().st_mode for path in (site.checkout / ".git").rglob("*")}
    for folder in [path for path in (site.checkout / ".git/objects").iterdir() if path.is_dir()]:
        folder.chmod(0o555)
    await stages.update()
    assert value(site) == "2"
    assert set(before) == set((site.checkout / ".git").rglob("*"))


async def test_c040_safe_directory_is_never_needed(stages: Stages) -> None:
    """git works on our repository only, so no permission for another folder is carried over, widened or asked for."""
    site = stages.site
    (Path(os.environ["HOME"]) / ".gitconfig").write_text("[safe]\n\tdirectory = /somewhere\n\tdirectory =\n")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert value(site) == "2"


async def test_c042_line_end_noise_is_no_edit(tmp_path: Path) -> None:
    names = [f"toy/n{i:03}.py" for i in range(200)]
    site = make_site(tmp_path, {**TOY_FILES, **dict.fromkeys(names, "A = 1\nB = 2\n")})
    git(site.checkout, "config", "core.autocrlf", "true")
    for name in names:
        (site.checkout / name).write_bytes(b"A = 1\r\nB = 2\r\n")
    assert git(site.checkout, "diff", "--numstat", "--ignore-cr-at-eol") == ""
    assert edits_of(site) == {}
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    stages = Stages(site)
    await stages.update()
    assert stages.told("user_action") == []
    assert value(site) == "2"


async def test_c044_our_own_marker_files_are_no_edit(stages: Stages) -> None:
    for name in (".install_method", ".update-incomplete", ".nedura-update-in-progress"):
        (stages.site.checkout / name).write_text("git\n")
    assert edits_of(stages.site) == {}
    assert not (await stages.prepare()).changed
    assert not (await stages.prepare()).changed


async def test_c045_state_of_a_home_inside_the_checkout_is_never_taken(tmp_path: Path) -> None:
    import sqlite3

    origin = make_origin(tmp_path / "origin")
    checkout = origin.clone(tmp_path / "source")
    checkout.chmod(0o700)
    home = checkout
    install_checkout(checkout, home, product=TOY, environment="none")
    from nedura.installs import find_installs

    site = Site(origin=origin, checkout=checkout, home=home, paths=find_installs(home)[0], product=TOY)
    (home / "auth.json").write_text('{"needle": 1}')
    live = sqlite3.connect(home / "state.db")
    try:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("CREATE TABLE t (x)")
        live.commit()
        inode = (home / "state.db").stat().st_ino
        (checkout / "toy/main.py").write_text("print('mine')\n")
        origin.commit({"toy/value.py": "VALUE = 2\n"})
        stages = Stages(site)
        run = await stages.update()
        assert run.candidate is not None
        manifest = read_manifest(run.candidate.folder)
        assert set(manifest.edits) == {"toy/main.py"}
        assert not (run.candidate.tree / "auth.json").exists()
        assert (home / "state.db").stat().st_ino == inode
        live.execute("INSERT INTO t VALUES (1)")
        live.commit()
    finally:
        live.close()
    assert site.run().stdout == "mine\n"


async def test_c046_up_to_date_is_decided_before_anything_is_touched(stages: Stages) -> None:
    (stages.site.checkout / "toy/main.py").write_text("print('mine')\n")
    await stages.update()
    for _ in range(2):
        run = await stages.prepare()
        assert not run.changed
        assert stages.told("user_action") == []
    assert (stages.site.checkout / "toy/main.py").read_text() == "print('mine')\n"


async def test_c047_own_commits_survive_a_rewritten_remote(stages: Stages) -> None:
    site = stages.site
    for number in range(2):
        (site.checkout / f"toy/own{number}.py").write_text(f"OWN = {number}\n")
        git(site.checkout, "add", "-A")
        git(site.checkout, "commit", "-q", "-m", f"own {number}")
    mine = git(site.checkout, "rev-parse", "HEAD")
    git(site.origin.folder, "commit", "-q", "--amend", "-m", "rewritten first")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert git(site.checkout, "rev-parse", "HEAD") == mine
    assert git(site.checkout, "fsck", "--unreachable", "--no-reflogs") == ""
    assert (run.candidate.tree / "toy/own1.py").exists(), "what runs has the own commits, too"
    assert value(site) == "2"
    assert any("rewritten" in event.text for event in stages.told("notice"))
    assert any("2 commits of the checkout's own" in event.detail for event in stages.told("step"))


async def test_withdrawn_commits_of_the_remote_do_not_come_back_as_own(stages: Stages) -> None:
    site = stages.site
    first = site.origin.head
    site.origin.commit({"toy/bad.py": "BAD = 1\n"})
    git(site.checkout, "pull", "-q")
    await stages.update()
    git(site.origin.folder, "reset", "-q", "--hard", first)
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert not (run.candidate.tree / "toy/bad.py").exists()


async def test_c048_a_core_file_that_does_not_compile_costs_nothing(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/main.py": "<<<<<<< HEAD\nx = 1\n=======\n"})
    with pytest.raises(UpdateError) as caught:
        await stages.update()
    assert caught.value.stop_class == "target_syntax_error"
    assert "toy/main.py" in caught.value.message
    assert value(site) == "1"
    bomb = "x = " + "(" * 100_000
    site.origin.commit({"toy/main.py": bomb})
    with pytest.raises(UpdateError):
        await stages.update()
    assert value(site) == "1"


async def test_c049_equal_size_and_time_never_run_old_bytecode(stages: Stages) -> None:
    site = stages.site
    old = site.paths.generations / "000001/tree/toy/value.py"
    stamp = old.stat().st_mtime
    site.origin.commit({"toy/value.py": "VALUE = 9\n"})
    run = await stages.update()
    assert run.candidate is not None
    new = run.candidate.tree / "toy/value.py"
    assert new.stat().st_size == old.stat().st_size
    os.utime(new, (stamp, stamp))
    os.utime(old, (stamp, stamp))
    assert value(site) == "9"
    pycs = [path for path in (new.parent / "__pycache__").iterdir() if path.name.startswith("value.")]
    assert all(path.stat().st_nlink == 1 for path in pycs), "bytecode is linked only with its very source"


async def test_c053_a_silent_build_shows_that_it_lives_and_has_a_limit(tmp_path: Path) -> None:
    beats: list[float] = []
    started = time.monotonic()
    done = run_bounded(
        ["/bin/sh", "-c", "sleep 30"],
        env=child_environment(),
        timeout=1.2,
        beat=beats.append,
        beat_seconds=0.3,
        sweep=True,
    )
    assert done.timed_out
    assert len(beats) >= 2
    assert time.monotonic() - started < 10
    assert Build(name="x", command=(), inputs=(), artifact="x").timeout <= 900


def test_c056_no_answer_is_unknown_and_never_kept_as_current(site: Site, tmp_path: Path) -> None:
    away = site.origin.folder.with_name("away")
    site.origin.folder.rename(away)
    current = read_identity(site.paths.current.resolve()).code_sha
    with pytest.raises(UpdateError):
        check_and_remember(site.home, site.product, dict(os.environ))
    record = (site.home / "update_check.json").read_text()
    assert '"unknown"' in record
    assert passive_notice(site.home, site.product, current, tmp_path / "nothing") == ""
    away.rename(site.origin.folder)
    site.origin.commit({"a": "1"})
    assert check_and_remember(site.home, site.product, dict(os.environ)).state == "behind"
    assert "newer version" in passive_notice(site.home, site.product, current, tmp_path / "nothing")


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a small disk"
)
async def test_c057_a_full_disk_is_refused_before_the_first_write(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m,mode=0700", "none", str(disk)], check=False
    ).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        stages = Stages(make_site(disk))
        site = stages.site
        site.origin.commit({"toy/big.py": "# " + "x" * 6_000_000 + "\n", "toy/value.py": "VALUE = 2\n"})
        with pytest.raises(UpdateError) as caught:
            await stages.update()
        assert caught.value.stop_class == "disk_full"
        assert value(site) == "1"
        assert os.listdir(site.paths.generations) == ["000001"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


async def test_c058_kept_edits_are_found_by_their_hash(stages: Stages) -> None:
    """There is no stack of stashes whose positions could shift: edits stay in the source, and are kept under their own id."""
    site = stages.site
    (site.checkout / "toy/value.py").write_text("VALUE = 'mine'\n")
    git(site.checkout, "stash", "push", "-q", "-m", "somebody else's")
    (site.checkout / "toy/value.py").write_text("VALUE = 'mine again'\n")
    site.origin.commit({"toy/value.py": "VALUE = 'theirs'\n"})
    before = git(site.checkout, "stash", "list")
    await stages.update()
    assert git(site.checkout, "stash", "list") == before
    (action,) = stages.told("user_action")
    ref, oid = git(
        site.paths.repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/nedura/parked/"
    ).split()
    assert ref in action.reason
    assert oid in action.reason


async def test_c059_what_runs_is_replaced_beside_and_renamed(site: Site, tmp_path: Path) -> None:
    """The launcher is replaced while it runs; a running program is never written into."""
    from nedura.update.generation.launcher import write_launcher

    binary = tmp_path / "helper"
    shutil.copy("/bin/sleep", binary)
    running = subprocess.Popen([str(binary), "30"])
    try:
        with pytest.raises(OSError, match="Text file busy"):
            os.close(os.open(binary, os.O_WRONLY))
        inode = site.launcher.stat().st_ino
        write_launcher(site.paths, site.product)
        assert site.launcher.stat().st_ino != inode
        assert value(site) == "1"
    finally:
        running.kill()
        running.wait()


async def test_c060_the_record_of_another_copy_is_named_not_used(site: Site, tmp_path: Path) -> None:
    other = site.origin.clone(tmp_path / "other")
    with pytest.raises(RefusedError) as caught:
        install_checkout(other, site.home, product=site.product, environment="none")
    assert str(site.checkout) in caught.value.message
    assert site.paths.install_id in caught.value.message


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs a second uid")
def test_c061_a_launcher_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    """As an ordinary user with a read-only bin folder: the old launcher is whole, and the failure is an error, not a success."""
    open_place = Path("/var/tmp") / f"nedura-c061-{os.getpid()}"
    open_place.mkdir(mode=0o755)
    try:
        script = (
            "import sys\nfrom pathlib import Path\nfrom nedura.errors import StoreError\nfrom nedura.installs import InstallPaths\n"
            "from nedura.product import NEDURA\nfrom nedura.update.generation.launcher import write_launcher\n"
            "paths = InstallPaths(Path(sys.argv[1]), 'a' * 12)\nwrite_launcher(paths, NEDURA)\n"
            "place = paths.launcher()\nbefore = place.read_bytes()\nplace.parent.chmod(0o555)\n"
            "try:\n    write_launcher(paths, NEDURA)\nexcept StoreError as error:\n"
            "    print('kept' if place.read_bytes() == before else 'gone')\n"
        )
        home = open_place / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        code = open_place / "code"
        shutil.copytree(
            Path(__file__).parents[2] / "nedura",
            code / "nedura",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", script, str(home)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{code}:{_packages()}"}, capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr:
            pytest.skip("the packages of this Python cannot be read by another user")
        assert done.stdout == "kept\n", done.stderr
    finally:
        shutil.rmtree(open_place)


def _packages() -> str:
    import attrs

    return str(Path(attrs.__file__).parents[1])


async def test_c065_a_process_keeps_the_files_of_its_generation(stages: Stages) -> None:
    """Shutdown code that the new version removed still loads: the old tree stays until the process is gone."""
    site = stages.site
    site.origin.commit({"toy/shutdown_helper.py": "WORD = 'orderly'\n"})
    await stages.update()
    code = "import sys\nimport toy\nprint('up', flush=True)\nsys.stdin.readline()\nfrom toy.shutdown_helper import WORD\nprint(WORD)\n"
    old = subprocess.Popen(
        [str(site.paths.current.resolve() / "venv/bin/python"), "-I", "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert old.stdout is not None
    assert old.stdout.readline() == "up\n"
    for number in (2, 3):
        site.origin.commit(
            {"toy/shutdown_helper.py": None if number == 2 else "", "toy/value.py": f"VALUE = {number}\n"}
        )
        await stages.update()
    from nedura.update.generation.collect import collect

    collect(site.paths, open_repository(site.paths, None), time.time() + 10_000)
    out, _ = old.communicate("\n", timeout=20)
    assert out == "orderly\n"


async def test_c069_success_means_that_the_target_runs(tmp_path: Path) -> None:
    """A detached source is no reason to go back to anything: what runs is what was fetched, or the run fails."""
    stages = Stages(make_site(tmp_path))
    site = stages.site
    git(site.checkout, "checkout", "-q", "--detach", "HEAD")
    for number in (2, 3, 4):
        site.origin.commit({"toy/value.py": f"VALUE = {number}\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert read_identity(site.paths.current.resolve()).code_sha == site.origin.head == run.candidate.target
    assert value(site) == "4"
    again = await stages.prepare()
    assert not again.changed
    assert verify_generation(site.paths.current.resolve()) == []
