"""threats.md 1: nothing that a source's configuration, hooks, attributes or environment names ever runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nedura.errors import NeduraError, RefusedError, UpdateError
from nedura.product import NEDURA
from nedura.testing.installs import TOY, Site, git, make_origin, make_site, own_files
from nedura.update.generation.install import install_checkout
from nedura.update.planning.admission import find_subject
from nedura.update.planning.plan import plan_update
from nedura.update.source.check import check_for_update
from nedura.update.source.fetch import _SURE, check_branch
from nedura.update.source.git import Git, find_git
from nedura.update.source.owner_checkout import read_source
from tests.kits.sealed import Stages

from .evil import EXEC_KEYS, make_evil, markers


@pytest.fixture
def marks(site: Site, tmp_path: Path) -> Path:
    return make_evil(site.checkout, tmp_path / "evil")


def test_the_trap_works_under_plain_git(site: Site, marks: Path) -> None:
    """Else every other test of this file is void."""
    source = site.checkout
    (source / "toy/value.py").write_text("VALUE = 2\n")
    for command in (["status"], ["diff"], ["add", "-A"], ["fetch"]):
        git(source, *command, check=False)
    assert {"core.fsmonitor", "filter.evil.process", "remote.origin.uploadpack"} <= set(markers(marks))
    for key in ("core.fsmonitor", "filter.evil.process", "filter.evil.clean", "filter.evil.smudge"):
        git(source, "config", "--unset", key)
    git(source, "checkout", "-q", "-b", "side", check=False)
    assert "hook-post-checkout" in markers(marks)
    (source / "toy/value.py").write_text("VALUE = 3\n")
    git(source, "diff", check=False)
    assert {"diff.external", "diff.evil.command"} & set(markers(marks)), markers(marks)


async def test_nothing_fires_in_plan_check_update(stages: Stages, marks: Path) -> None:
    site = stages.site
    (site.checkout / "toy/main.py").write_text("print('edited')\n")
    (site.checkout / "toy/extra.py").write_text("E = 1\n")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    plan = await plan_update(home=site.home, product=site.product)
    assert plan.unreadable == {}
    assert {"core.fsmonitor", "core.hookspath", "filter.evil.clean", "include.path"} <= set(
        plan.ignored_programs
    )
    assert check_for_update(site.home, site.product, dict(os.environ)).state == "behind"
    run = await stages.update()
    assert run.changed
    assert site.run().stdout == "edited\n"
    assert (run.candidate.tree / "toy/value.py").read_text() == "VALUE = 2\n" if run.candidate else False
    assert markers(marks) == []


def test_nothing_fires_at_install(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    checkout = origin.clone(tmp_path / "source")
    marks = make_evil(checkout, tmp_path / "evil")
    install_checkout(checkout, tmp_path / "home", product=TOY)
    assert markers(marks) == []


async def test_a_conflict_runs_no_merge_driver(stages: Stages, marks: Path) -> None:
    (stages.site.checkout / "toy/value.py").write_text("VALUE = 100\n")
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert run.candidate.parked == ("toy/value.py",)
    assert markers(marks) == []


def test_every_key_that_names_a_program_is_listed(site: Site, marks: Path) -> None:
    listed = read_source(site.checkout, find_git(), dict(os.environ)).exec_keys
    assert {key.lower() for key in EXEC_KEYS} <= set(listed)
    assert markers(marks) == []


async def test_an_included_insteadof_leads_nowhere(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's global configuration is read for the fetch; the protocol stays the one that was parsed."""
    site = stages.site
    mark = tmp_path / "mark"
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(
        f'[url "ext::sh -c touch% {mark}"]\n\tinsteadOf = {site.origin.folder}\n[protocol "ext"]\n\tallow = always\n'
    )
    with pytest.raises(UpdateError, match="not allowed") as caught:
        await stages.prepare()
    assert caught.value.stop_class == "fetch_failed"
    assert not mark.exists()
    shown = subprocess.run(
        [find_git(), "ls-remote", str(site.origin.folder)], capture_output=True, check=False, cwd="/",
        env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip
    assert mark.exists(), f"the trap does not work under plain git: {shown.stderr!r}"


GIT_VARIABLES = {
    "GIT_DIR": "/nonexistent", "GIT_WORK_TREE": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_OBJECT_DIRECTORY": "/nonexistent",
    "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "{mark}", "GIT_SSH_COMMAND": "{mark}",
    "GIT_SSH": "{mark}", "GIT_EXEC_PATH": "/nonexistent", "GIT_EXTERNAL_DIFF": "{mark}", "GIT_PROXY_COMMAND": "{mark}",
    "GIT_ASKPASS": "{mark}", "GIT_EDITOR": "{mark}", "GIT_TRACE": "{trace}", "GIT_TRACE_CURL": "{trace}", "GIT_TRACE2": "{trace}",
    "GIT_CONFIG_PARAMETERS": "'core.fsmonitor={mark}'", "GIT_TEMPLATE_DIR": "/nonexistent",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nonexistent",
    "GIT_NAMESPACE": "x", "GIT_SSL_NO_VERIFY": "1", "GIT_ALLOW_PROTOCOL": "ext:file:https", "GIT_CONFIG_GLOBAL": "/nonexistent",
}  # fmt: skip


async def test_inherited_git_variables_have_no_effect(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "program"
    mark.write_text(f"#!/bin/sh\n: > {tmp_path}/fired\n")
    mark.chmod(0o755)
    (stages.site.checkout / "toy/extra.py").write_text("E = 1\n")
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    for name, value in GIT_VARIABLES.items():
        monkeypatch.setenv(name, value.format(mark=mark, trace=tmp_path / "trace"))
    run = await stages.update()
    assert run.candidate is not None
    assert (run.candidate.tree / "toy/extra.py").exists()
    assert stages.site.run().stdout.splitlines()[0] == "2"
    assert not (tmp_path / "fired").exists()
    assert not (tmp_path / "trace").exists()


def test_a_git_in_the_way_is_not_run(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers come from the safe part of PATH: no relative, empty or other-writable folder (threats.md 2)."""
    mark = tmp_path / "fired"
    for name, mode in (("open", 0o777), ("mine", 0o755)):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(mode)
        (folder / "git").write_text(f'#!/bin/sh\n: > {mark}\nexec /usr/bin/git "$@"\n')
        (folder / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("PATH", f":.:mine:{tmp_path}/open:{os.environ['PATH']}")
    assert check_for_update(site.home, site.product, dict(os.environ)).state == "current"
    assert not mark.exists()
    monkeypatch.setenv("PATH", f"{tmp_path}/mine:{os.environ['PATH']}")
    check_for_update(site.home, site.product, dict(os.environ))
    assert mark.exists(), "a folder of our own on PATH is taken, or this test proves nothing"


def _linked_git(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git").rename(tmp_path / "moved.git")
    (checkout / ".git").symlink_to(tmp_path / "moved.git")


def _pointing_nowhere(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git").rename(tmp_path / "moved.git")
    (checkout / ".git").write_text("gitdir: /nonexistent/x\n")


def _pointing_to_a_shared_folder(checkout: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (checkout / ".git").rename(shared / "moved.git")
    (checkout / ".git").write_text(f"gitdir: {shared / 'moved.git'}\n")
    shared.chmod(0o777)
    tmp_path.chmod(0o755)


def _no_file(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".git").rename(tmp_path / "moved.git")
    os.mkfifo(checkout / ".git")


SHAPES = [_linked_git, _pointing_nowhere, _no_file]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_odd_git_folders_are_refused(site: Site, tmp_path: Path, shape: object) -> None:
    assert callable(shape)
    shape(site.checkout, tmp_path)
    with pytest.raises(RefusedError):
        read_source(site.checkout, find_git(), dict(os.environ))


def test_a_linked_worktree_is_an_ordinary_source(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    clone = origin.clone(tmp_path / "clone")
    git(clone, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    done = install_checkout(tmp_path / "side", tmp_path / "home", product=TOY)
    assert done.code_sha == origin.head


def test_a_submodule_starts_nothing_and_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    origin = make_origin(tmp_path / "origin")
    modules = f'[submodule "s"]\n\tpath = s\n\turl = ext::sh -c touch% {mark}\n\tupdate = !touch {mark}\n'
    origin.commit({".gitmodules": modules})
    git(origin.folder, "update-index", "--add", "--cacheinfo", f"160000,{origin.head},s")
    git(origin.folder, "commit", "-q", "-m", "sub")
    checkout = origin.clone(tmp_path / "source")
    assert os.listdir(checkout / "s") == [], "a clone has an empty folder in its place"
    with pytest.raises(UpdateError, match="submodule"):
        install_checkout(checkout, tmp_path / "home", product=TOY)
    assert not mark.exists()


HOSTILE = [
    "-x",
    "--upload-pack=touch x",
    "-c",
    "a b",
    "a..b",
    "a~1",
    "a:b",
    "$(touch x)",
    "x.lock",
    "/a",
    "a//b",
    "@{u}",
    "a\x00b",
    "\x1b[2J",
    "",
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Git:
    repo = tmp_path_factory.mktemp("repo") / "repo.git"
    git(repo.parent, "init", "-q", "--bare", str(repo))
    return Git(program=find_git(), repo=repo)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_branch_names_never_reach_git_as_options(repository: Git, name: str) -> None:
    with pytest.raises(UpdateError, match="no name of a branch"):
        check_branch(repository, name)


@settings(max_examples=40, deadline=None)
@given(name=st.from_regex(_SURE, fullmatch=True))
def test_a_name_that_git_is_not_asked_about_is_one_that_git_takes(repository: Git, name: str) -> None:
    assert repository.run("check-ref-format", f"refs/heads/{name}", ok=(0, 1)).code == 0


@settings(max_examples=40, deadline=None)
@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20))
def test_any_branch_name_is_refused_or_plain(repository: Git, name: str) -> None:
    try:
        assert check_branch(repository, name) == name
    except UpdateError:
        return
    assert not name.startswith("-")
    assert name.isprintable()


def entries(folder: Path, *lines: str) -> str:
    """A tree object as nobody's git add would make it."""
    return git(folder, "mktree", "-z", "--missing", stdin="".join(f"{line}\0" for line in lines).encode())


TREES = {
    "absolute link": ("120000", "out", "/etc/passwd"),
    "escaping link": ("120000", "out", "../../../etc/passwd"),
    "newline": ("100644", "a\nb", "x"),
    "option": ("100644", "--upload-pack=x", "x"),
    "escape sequence": ("100644", "a\x1b[2J", "x"),
    "git folder": ("100644", ".GIT", "x"),
}


@pytest.mark.parametrize(("mode", "name", "content"), TREES.values(), ids=TREES)
async def test_a_hostile_tree_is_refused_by_name(
    stages: Stages, tmp_path: Path, mode: str, name: str, content: str
) -> None:
    folder = stages.site.origin.folder
    blob = git(folder, "hash-object", "-w", "--stdin", stdin=content.encode())
    base = git(folder, "ls-tree", "-z", "HEAD").split("\0")
    tree = entries(folder, *[line for line in base if line], f"{mode} blob {blob}\t{name}")
    commit = git(folder, "commit-tree", tree, "-p", "HEAD", "-m", "evil")
    git(folder, "update-ref", "refs/heads/main", commit)
    before = sorted(os.listdir(stages.site.paths.generations))
    with pytest.raises(UpdateError) as caught:
        await stages.prepare()
    assert caught.value.stop_class in ("tree", "fetch_failed")
    assert caught.value.message.isprintable()
    assert sorted(os.listdir(stages.site.paths.generations)) == before


async def test_case_twins_are_refused(stages: Stages) -> None:
    stages.site.origin.commit({"toy/Value.py": "X = 1\n"})
    with pytest.raises(UpdateError, match="only in letter case"):
        await stages.prepare()


async def test_export_attributes_change_nothing(stages: Stages) -> None:
    """`git archive` would obey export-ignore and export-subst; a sealed tree is what its commit says."""
    stages.site.origin.commit(
        {
            ".gitattributes": "toy/value.py export-ignore\ntoy/note.txt export-subst\n",
            "toy/note.txt": "$Format:%H$\n",
        }
    )
    run = await stages.update()
    assert run.candidate is not None
    assert (run.candidate.tree / "toy/value.py").exists()
    assert (run.candidate.tree / "toy/note.txt").read_text() == "$Format:%H$\n"


async def test_line_end_attributes_are_verified_by_what_was_written(stages: Stages) -> None:
    stages.site.origin.commit({".gitattributes": "*.bat eol=crlf\n", "x.bat": "a\nb\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert (run.candidate.tree / "x.bat").read_bytes() == b"a\r\nb\r\n"
    again = await stages.prepare()
    assert not again.changed


async def test_planted_bytecode_is_not_materialised(stages: Stages) -> None:
    stages.site.origin.commit(
        {".gitignore": "", "toy/__pycache__/value.cpython-311.pyc": b"evil", "toy/hidden.pyc": b"evil"}
    )
    run = await stages.update()
    assert run.candidate is not None
    assert not (run.candidate.tree / "toy/hidden.pyc").exists()
    assert (run.candidate.tree / "toy/__pycache__/value.cpython-311.pyc").read_bytes() != b"evil"


async def test_a_moved_remote_is_said_and_not_followed(stages: Stages, tmp_path: Path) -> None:
    other = make_origin(tmp_path / "other")
    other.commit({"toy/value.py": "VALUE = 666\n"})
    git(stages.site.checkout, "remote", "set-url", "origin", f"file://{other.folder}")
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert stages.site.run().stdout.splitlines()[0] == "2"
    assert any("pinned at install" in event.text for event in stages.told("notice"))


async def test_carried_edits_are_regular_files_only(stages: Stages, tmp_path: Path) -> None:
    source = stages.site.checkout
    secret = tmp_path / "id"
    secret.write_text("needle")
    (source / "leak").symlink_to(secret)
    (source / "evil.pth").write_text("import os\n")
    (source / "sitecustomize.py").write_text("x = 1\n")
    (source / "toy/value.py").unlink()
    (source / "toy/value.py").symlink_to(secret)
    (source / "nested").mkdir()
    git(source / "nested", "init", "-q")
    (source / "nested/file").write_text("x")
    (source / "big").write_bytes(b"\0" * (10 * 1024 * 1024 + 1))
    stages.site.origin.commit({"toy/new.py": "N = 1\n"})
    run = await stages.update()
    assert run.candidate is not None
    tree = run.candidate.tree
    assert not any(
        (tree / name).exists() for name in ("leak", "evil.pth", "sitecustomize.py", "nested", "big")
    )
    assert (tree / "toy/value.py").read_text() == "VALUE = 1\n"
    (notice,) = [event.text for event in stages.told("notice") if "not carried" in event.text]
    for name in ("leak", "evil.pth", "sitecustomize.py", "toy/value.py", "nested", "big"):
        assert name in notice


@pytest.mark.timeout(240)
def test_the_whole_program_finds_no_marker(tmp_path: Path) -> None:
    """The real command on a real tree: plan and check through the launcher."""
    site = make_site(tmp_path, "own", product=NEDURA)
    marks = make_evil(site.checkout, tmp_path / "evil")
    assert own_files()
    for command in (
        ["update", "--plan"],
        ["update", "--check"],
        ["pm", "status"],
        ["update", "--install-id"],
    ):
        done = site.run(*command)
        assert done.returncode == 0, done.stderr
    assert markers(marks) == []


def test_the_source_of_another_home_is_never_mistaken(site: Site) -> None:
    try:
        subject = find_subject(site.home, site.product, dict(os.environ))
    except NeduraError as error:
        raise AssertionError from error
    assert subject.install == site.paths
