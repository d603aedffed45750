"""Installing: from a git checkout to a sealed install with one generation and a launcher, or nothing at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import attrs

from nedura.clock import iso
from nedura.errors import RecordCorrupt, RefusedError, StoreError, UpdateError
from nedura.installs import InstallPaths, find_installs, install_id_for
from nedura.locks import FileLock
from nedura.product import NEDURA, Product
from nedura.programs import child_environment
from nedura.records import make_folder, remove, write_bytes
from nedura.text import clean, counted
from nedura.update.events_install import Installed, InstallStep
from nedura.update.generation.build_run import apply_build, decisions_for
from nedura.update.generation.candidate import Building, Inputs, requires_python, start, tree_text
from nedura.update.generation.damage import damage
from nedura.update.generation.environment import discard, ensure_environment
from nedura.update.generation.generations import is_generation, point, read_manifest
from nedura.update.generation.interpreter import Interpreter, choose
from nedura.update.generation.launcher import launcher_install, write_launcher
from nedura.update.generation.places import check_home_place
from nedura.update.generation.record import InstallRecord, own_branch, read_record, write_record
from nedura.update.options_check import check_wheels
from nedura.update.source.edit_merge import merge_edits
from nedura.update.source.edits import read_edits
from nedura.update.source.git import Git, commit_id, find_git
from nedura.update.source.owner_checkout import Source, read_source
from nedura.update.source.repository import open_repository
from nedura.update.source.urls import parse_remote

__all__ = ["install_checkout"]

Report = Callable[[InstallStep], None]


def _silent(step: InstallStep) -> None:
    """Report nothing."""


@attrs.frozen(kw_only=True)
class _Job:
    """What one installation works with."""

    source: Source
    paths: InstallPaths
    product: Product
    environ: Mapping[str, str]
    environment: Literal["managed", "none"]
    python: str
    wheels: Path | None
    report: Report


def install_checkout(
    source_checkout: Path,
    root_home: Path,
    *,
    product: Product = NEDURA,
    python: str = "",
    wheels: Path | None = None,
    environment: Literal["managed", "none"] | None = None,
    remote: str = "",
    branch: str = "",
    environ: Mapping[str, str] | None = None,
    report: Report = _silent,
) -> Installed:
    """Install a checkout into a root home. Blocks; takes seconds (an environment is built).

    Args:
        source_checkout: the owner's git checkout; only read.
        root_home: home that the install serves, made when missing.
        product: whose tree it is.
        python: interpreter to prefer; default the running one's base.
        wheels: folder of wheels instead of an index.
        environment: who provides packages; default the product's answer. With `none` the packages of `python` are used.
        remote: address to pin; default the checkout's own remote, without one the checkout itself.
        branch: branch to follow; default the checkout's.
        environ: where children's variables come from.
        report: called with each step.

    Raises:
        UsageError: there is no such folder of wheels.
        RefusedError: the place, the source or the remote is not acceptable; nothing was changed.
        UpdateError, StoreError: a step failed; nothing of it is left.
    """
    check_wheels(wheels)
    environ = dict(os.environ if environ is None else environ)
    root_home = Path(os.path.realpath(root_home))
    check_home_place(root_home)
    source = read_source(source_checkout, find_git(environ), environ)
    if not source.head:
        raise RefusedError(
            f"{clean(str(source.checkout), 300)} has no commit yet.", advice="Commit something first."
        )
    job = _Job(
        source=source,
        paths=InstallPaths(root_home, install_id_for(source.checkout)),
        product=product,
        environ=environ,
        environment=product.environment if environment is None else environment,
        python=python,
        wheels=wheels,
        report=report,
    )
    record = _record(job, remote, branch)
    _check_other_install(job)
    return _locked_install(job, record)


def _record(job: _Job, remote: str, branch: str) -> InstallRecord:
    """Pin where updates come from.

    Raises:
        RefusedError: the remote's address is not acceptable.
    """
    url = remote or job.source.remote_url or str(job.source.checkout)
    if "://" not in url and ":" not in url and not url.startswith("/"):
        url = os.path.realpath(job.source.checkout / url)
    parsed = parse_remote(url)
    return InstallRecord(
        install_id=job.paths.install_id,
        source=str(job.source.checkout),
        remote_name=job.source.remote_name if not remote else "",
        remote_url=parsed.url,
        branch=branch
        or (own_branch(job.source) if job.source.branch and not remote else job.source.remote_branch),
        command=job.product.command,
        created=iso(time.time()),
        environment=job.environment,
        packages=_host_packages(job) if job.environment == "none" else (),
    )


def _host_packages(job: _Job) -> tuple[str, ...]:
    """Folders of packages that the host provides: those of the named interpreter, default the running one."""
    python = job.python or sys.executable
    ask = "import json, site; print(json.dumps(site.getsitepackages()))"
    try:
        answer = subprocess.run(
            [python, "-I", "-c", ask],
            env=child_environment(job.environ),
            capture_output=True,
            timeout=30,
            check=True,
        )
        return tuple(path for path in json.loads(answer.stdout) if os.path.isdir(path))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UpdateError(f"{clean(python)} does not start.", stop_class="python") from error


def _check_other_install(job: _Job) -> None:
    """One launcher name serves one install.

    Raises:
        RefusedError: another install owns the launcher.
    """
    owner = launcher_install(job.paths, job.product.command) if job.paths.root_home.is_dir() else ""
    if owner in ("", job.paths.install_id):
        return
    of = next((p for p in find_installs(job.paths.root_home) if p.install_id == owner), None)
    where = f" (from {clean(read_record(of).source, 200)})" if of is not None else ""
    raise RefusedError(
        f"{clean(str(job.paths.root_home), 300)} already runs another install, {clean(owner)}{where}.",
        advice="Choose another home with --home, or update that install.",
    )


def _locked_install(job: _Job, record: InstallRecord) -> Installed:
    made_home = not job.paths.root_home.exists()
    made = not job.paths.folder.exists()
    make_folder(job.paths.folder)
    lock = FileLock(job.paths.lock, f"The install {job.paths.install_id}")
    lock.acquire(timeout=2.0)
    try:
        existing = _existing(job)
        if existing is not None:
            return existing
        return _build(job, record)
    except BaseException:
        _undo(job, made, made_home)
        raise
    finally:
        lock.release()


def _undo(job: _Job, made: bool, made_home: bool) -> None:
    """Take away what a failed first installation made; what was there before stays."""
    if not made or job.paths.record.exists():
        return
    discard(job.paths.folder)
    folders = (job.paths.folder.parent, job.paths.root_home) if made_home else (job.paths.folder.parent,)
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # not empty: somebody else's
            return


def _existing(job: _Job) -> Installed | None:
    """The install that is already there, its launcher put right; None when there is none."""
    try:
        read_record(job.paths)
        current = job.paths.pointed()
    except RecordCorrupt:
        if job.paths.current.exists() and not job.paths.current.is_symlink():
            os.rename(job.paths.current, job.paths.folder / ".trash-current")  # no pointer can take its place
        return None
    except StoreError:
        return None
    if current is None or not is_generation(current) or damage(str(current)):
        return None  # "install it again" is the last way out of damage, too
    write_launcher(job.paths, job.product)
    return _installed(job, current, existing=True)


def _installed(job: _Job, generation: Path, *, existing: bool = False) -> Installed:
    manifest = read_manifest(generation)
    return Installed(
        install_id=job.paths.install_id,
        generation=generation.name,
        code_sha=manifest.identity.code_sha,
        code_version=manifest.identity.code_version,
        home=str(job.paths.root_home),
        launcher=str(job.paths.launcher(job.product.command)),
        existing=existing,
    )


def _build(job: _Job, record: InstallRecord) -> Installed:
    job.report(InstallStep(label="reading the source"))
    git = open_repository(job.paths, job.source, job.environ)
    _link_source(job)
    inputs = _inputs(job, git, record)
    building = start(job.paths, git, job.product, inputs, job.environ)
    try:
        _fill(job, building)
        candidate = building.finish(time.time(), record.branch)
    except BaseException:
        discard(building.folder)
        raise
    point(job.paths, job.paths.current, candidate.folder)
    write_record(job.paths, attrs.evolve(record, python=inputs.python.path))
    write_launcher(job.paths, job.product)
    return _installed(job, candidate.folder)


def _link_source(job: _Job) -> None:
    """The first link of an install: here it shows whether the file system has any.

    Raises:
        RefusedError: it has none; pointers and interpreters are links, so nothing of an install can be there.
    """
    if job.paths.source.is_symlink():
        return
    try:
        os.symlink(job.source.checkout, job.paths.source)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise RefusedError(
            f"The file system of {clean(str(job.paths.root_home), 200)} has no symbolic links; an install cannot be there.",
            advice="Choose a home on another one with --home.",
        ) from error


def _inputs(job: _Job, git: Git, record: InstallRecord) -> Inputs:
    commit = commit_id(job.source.head)
    inside = job.source.checkout == job.paths.root_home or job.source.checkout in job.paths.root_home.parents
    edits = read_edits(git, job.source, job.paths.folder, untracked=not inside)
    merge = merge_edits(git, edits, commit, job.paths.folder)
    tree = merge.tree
    if merge.carried:
        job.report(InstallStep(label=f"taking {counted(len(merge.carried), 'local edit')} along"))
    requires = requires_python(tree_text(git, tree, "pyproject.toml"))
    python = choose(requires, job.python if job.environment == "managed" else "", job.environ)
    env = ""
    if job.environment == "managed":
        job.report(InstallStep(label="installing packages"))
        env = _environment(job, git, tree, python)
    return Inputs(
        commit=commit, tree=tree, edits=merge.carried, python=python, env=env, packages=record.packages
    )


def _environment(job: _Job, git: Git, tree: str, python: Interpreter) -> str:
    """Hash of the environment for a tree, built when it is not there."""
    lock = tree_text(git, tree, job.product.lock_file, 8 << 20)
    if lock is None:
        raise UpdateError(
            f"The source has no {job.product.lock_file}.",
            stop_class="dependencies",
            advice="Commit a hash-checked lock file, or install with --environment none.",
        )
    scratch = job.paths.folder / ".tmp.lock.txt"
    write_bytes(scratch, lock)
    try:
        request = {
            "python": python.path,
            "lock": str(scratch),
            "envs": str(job.paths.envs),
            "wheels": str(job.wheels or ""),
        }
        return str(ensure_environment(request, job.environ)["hash"])
    finally:
        remove(scratch)


def _fill(job: _Job, building: Building) -> None:
    job.report(InstallStep(label="writing the first generation"))
    building.files()
    job.report(InstallStep(label="compiling"))
    building.bytecode()
    building.venv()
    if building.broken:
        _check_launch(job, building)
    _builds(job, building)


def _builds(job: _Job, building: Building) -> None:
    """Builds that every install has; a failed one fails the installation.

    Raises:
        UpdateError: names the build.
    """
    home = job.paths.root_home
    for decision in decisions_for(job.product.builds, building.entries, home, None, None):
        if decision.action == "skip":
            continue
        job.report(InstallStep(label=f"building {decision.build.name}"))
        failure = apply_build(building, decision, home, time.time())
        if failure:
            raise UpdateError(f"The build {decision.build.name} failed: {failure}", stop_class="build")


def _check_launch(job: _Job, building: Building) -> None:
    """A launch module that does not compile is no install.

    Raises:
        UpdateError: names the file.
    """
    for module in job.product.launch_modules:
        for root in job.product.roots:
            name = f"{root}/{module.replace('.', '/')}.py".lstrip("/")
            if name in building.broken:
                raise UpdateError(f"{name} does not compile: {building.broken[name]}", stop_class="compile")
