"""Collects the plan, part by part; each part degrades to nothing and says why."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from nedura.clock import Clock
from nedura.config import read_config
from nedura.errors import NeduraError
from nedura.fleet import Fleet, Runtime, ServiceInfo, collect, list_services
from nedura.fleet.service.place import real_place
from nedura.fleet.supervisors.listing import written_by_us
from nedura.installs import InstallPaths
from nedura.product import Product
from nedura.profiles import list_profiles, stray_profiles
from nedura.records import make_folder
from nedura.text import clean, counted
from nedura.update.bounded import in_thread
from nedura.update.generation.places import check_home_place
from nedura.update.generation.record import followed, read_record
from nedura.update.options import SnapshotMode, UpdateOptions
from nedura.update.planning.admission import Subject, find_subject
from nedura.update.planning.deadlines import deadlines, total
from nedura.update.planning.install_kind import InstallKind
from nedura.update.planning.plan import Plan, PlanRuntime
from nedura.update.planning.stopped import Stopped, stopped_services
from nedura.update.source.channels import channel_key, choose_channel
from nedura.update.source.edits import Edits, read_edits
from nedura.update.source.git import Git, find_git, knows_merges
from nedura.update.source.owner_checkout import Source, read_source
from nedura.update.source.unfinished import has_operation
from nedura.update.source.urls import parse_remote, upstream_of
from nedura.update.state.snapshot_mode import KEY, snapshot_mode
from nedura.update.state.snapshot_set import FILE_CAP, expand

__all__ = ["closed", "collect_plan"]

T = TypeVar("T")
MAX_FOREIGN: Final = 20
_GENERATION_PATH: Final = re.compile(r"/installs/[0-9a-f]{12}/generations/[0-9]{6,}/")


async def _guarded(
    part: str,
    fields: dict[str, Any],
    unreadable: dict[str, str],
    work: Callable[[], Awaitable[Mapping[str, Any]]],
) -> None:
    """One part of the plan; begun only here, so that a cancel before leaves no coroutine behind that Python would complain about."""
    try:
        fields.update(await work())
    except NeduraError as error:
        unreadable[part] = error.diagnostics()
    except Exception as error:  # border: a plan never raises; what is missing is named
        unreadable[part] = f"{type(error).__name__}: {clean(error)}"


async def collect_plan(
    root: Path,
    home: Path,
    product: Product,
    environ: Mapping[str, str],
    clock: Clock,
    anchor: Path | None,
    wanted: tuple[str | None, str | None] = (None, None),
    saves: SnapshotMode | None = None,
) -> Plan:
    """Everything that `plan_update` promises.

    Args:
        root: root home.
        home: the invoking profile's home.
        product: names.
        environ: the environment.
        clock: time seam.
        anchor: a file of the running code.
        wanted: branch and channel that the update is asked to follow.
        saves: how much the update is asked to save; None lets the configuration say it.
    """
    fields: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    subject = _subject(root, product, environ, anchor, unreadable)
    fields |= _subject_fields(subject)
    fields["conflicts"] += await in_thread(_bad_place, root, subject)

    async def in_a_thread(function: Callable[..., Mapping[str, Any]], *args: Any) -> Mapping[str, Any]:
        return await in_thread(function, *args)

    await asyncio.gather(
        _guarded("profiles", fields, unreadable, lambda: in_a_thread(_profiles, root)),
        _guarded("fleet", fields, unreadable, lambda: _fleet(root, home, product, environ, subject)),
        _guarded(
            "source",
            fields,
            unreadable,
            lambda: in_a_thread(_source, root, product, environ, subject, wanted),
        ),
        _guarded("state", fields, unreadable, lambda: in_a_thread(_state, root)),
        _guarded("backup", fields, unreadable, lambda: in_a_thread(_backup, root, subject, saves)),
    )
    fields["conflicts"] += fields.pop("unwritable", ())
    unreadable |= fields.pop("closed", {}) | fields.pop("gone", {})
    stages = deadlines(
        state_bytes=fields.pop("state_bytes", 0),
        backup_bytes=fields.pop("backup_bytes", 0),
        drains=fields.pop("drains", ()),
        boots=fields.pop("boots", ()),
        builds=[build.timeout for build in product.builds],
        environment=_environment(subject, product) == "managed",
    )
    fields.setdefault("summary", "The fleet could not be read.")
    return Plan(**fields, unreadable=unreadable, deadlines=stages, deadline_s=total(stages))


def _subject(
    root: Path,
    product: Product,
    environ: Mapping[str, str],
    anchor: Path | None,
    unreadable: dict[str, str],
) -> Subject:
    try:
        return find_subject(root, product, environ, anchor=anchor)
    except Exception as error:  # border: a plan never raises; what is missing is named
        unreadable["install"] = why = clean(error)
        reason = f"it cannot be told ({why})."
        return Subject(kind=InstallKind(kind="unknown", updatable=False, mechanism="", reason=reason))


def _environment(subject: Subject, product: Product) -> str:
    """Who provides the packages: what the install's record says, else what the product would choose."""
    try:
        return (
            read_record(subject.install).environment if subject.install is not None else product.environment
        )
    except NeduraError:  # a damaged one is told with the source
        return product.environment


def _subject_fields(subject: Subject) -> dict[str, Any]:
    kind, code = subject.kind, subject.code
    return {
        "install_method": kind.kind,
        "updatable_in_place": kind.updatable,
        "update_mechanism": kind.mechanism,
        "refusal": kind.reason,
        "conflicts": kind.conflicts,
        "expected_sha": code.code_sha or None,
        "expected_version": code.code_version or None,
        "install_id": subject.install.install_id if subject.install is not None else "",
        "layout": subject.layout if subject.install is not None else "",
        "generation": code.generation,
        "source": str(subject.checkout or ""),
    }


def _bad_place(root: Path, subject: Subject) -> tuple[str, ...]:
    """Why an update would be refused in this home, though the install itself is ours to update."""
    if not subject.kind.updatable:
        return ()
    try:
        check_home_place(root)
    except (NeduraError, OSError) as error:
        return (error.diagnostics() if isinstance(error, NeduraError) else clean(error),)
    return ()


def _profiles(root: Path) -> dict[str, Any]:
    profiles = list_profiles(root)
    return {
        "profiles": tuple(profile.name for profile in profiles),
        "closed": {f"profile {one.name}": why for one in profiles if (why := closed(one.home))},
        "unwritable": tuple(
            f"Profile {one.name} cannot be written ({why}): an update saves and migrates nothing of it."
            for one in profiles
            if (why := unwritable(one.home))
        ),
        "strays": {stray.name: stray.reason for stray in stray_profiles(root)},
    }


def closed(home: Path, access: Callable[[Path, int], bool] = os.access) -> str:
    """Why a home cannot be looked into: an update then saves and migrates nothing of it. Empty when it can.

    Args:
        home: a profile's home.
        access: asks the system for rights.
    """
    if not home.is_dir() or access(home, os.R_OK | os.X_OK):
        return ""
    return "permission denied; check its owner and mode"


def _flags(folder: Path) -> int:
    return os.statvfs(folder).f_flag


def unwritable(
    home: Path,
    access: Callable[[Path, int], bool] = os.access,
    flags: Callable[[Path], int] = _flags,
) -> str:
    """Why a home that can be looked into cannot be written. Empty when it can.

    Args:
        home: a profile's home.
        access: asks the system for rights.
        flags: of a folder's file system, as `statvfs` has them.
    """
    if not home.is_dir() or closed(home, access) or access(home, os.R_OK | os.W_OK | os.X_OK):
        return ""
    return "its disk is read-only" if flags(home) & os.ST_RDONLY else "check its owner and mode"


def _state(root: Path) -> dict[str, Any]:
    """Bytes that a snapshot would copy, from sizes alone; what is over its cap stays out and takes no time."""
    homes = [profile.home for profile in list_profiles(root)]
    return {"state_bytes": sum(min(source.size, FILE_CAP) for home in homes for source in expand(home))}


def _backup(root: Path, subject: Subject, saves: SnapshotMode | None) -> dict[str, Any]:
    """Bytes that a full backup would pack, from sizes alone, where the update takes one."""
    from nedura.update.state.backup_walk import walk_home  # only where a full backup is asked for
    from nedura.update.state.code_files import code_in

    if (saves or snapshot_mode(UpdateOptions(), read_config(root).get(KEY))[0]) != "full":
        return {}
    code = code_in(root, subject.checkout)
    return {"backup_bytes": sum(_size(found.path) for found in walk_home(root, code=code) if not found.skip)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone since it was listed, or told by the backup itself
        return 0


async def _fleet(
    root: Path, home: Path, product: Product, environ: Mapping[str, str], subject: Subject
) -> dict[str, Any]:
    listing = await list_services(product=product, environ=environ)
    fleet = await collect(
        root,
        product=product,
        extra_homes=(home,),
        install_id=subject.install.install_id if subject.install is not None else None,
        services=listing.services,
        environ=environ,
    )
    stopped = await in_thread(_stopped, root, listing.services, product, environ)
    return {
        "runtimes": tuple(map(_runtime, fleet.runtimes)),
        "foreign": tuple(clean(one.copy_terminal, 300) for one in fleet.foreign[:MAX_FOREIGN]),
        "stopped": {clean(one.name, 120): clean(one.profile, 80) for one in stopped},
        "fixed_definitions": await in_thread(_fixed, listing.services, stopped),
        "summary": _summary(fleet),
        "drains": [runtime.drain_budget_s for runtime in fleet.runtimes],
        "boots": [runtime.boot_s for runtime in fleet.runtimes],
    }


def _runtime(runtime: Runtime) -> PlanRuntime:
    return PlanRuntime(
        kind=runtime.kind,
        profile=clean(runtime.profile, 80),
        pid=runtime.pid,
        supervisor=runtime.supervisor,
        code_sha=runtime.code.code_sha or None,
        code_version=runtime.code.code_version or None,
        restart_via=runtime.restart_via,
        detail=runtime.detail if runtime.kind != "gateway" else {},
    )


def _summary(fleet: Fleet) -> str:
    count = len(fleet.runtimes)
    if not count:
        return "No running services: an update would change the code only."
    profiles = ", ".join(dict.fromkeys(clean(runtime.profile, 60) for runtime in fleet.runtimes))
    return f"{counted(count, 'running service')} across profiles: {profiles}"


def _stopped(
    root: Path, services: tuple[ServiceInfo, ...], product: Product, environ: Mapping[str, str]
) -> tuple[Stopped, ...]:
    place = real_place(environ)
    folders = (place.agents,) if place.platform == "darwin" else (place.user_units, place.system_units)
    homes = {profile.name: profile.home for profile in list_profiles(root)}
    return stopped_services(homes, services, folders, product)


def _fixed(services: tuple[ServiceInfo, ...], stopped: tuple[Stopped, ...] = ()) -> tuple[str, ...]:
    """Definitions of ours that name a generation's path: they would never follow an update (decision 46)."""
    found = []
    ours = [service.definition for service in services if service.written_by_us]
    ours += [one.definition for one in stopped if one.definition and written_by_us(one.definition)]
    for definition in dict.fromkeys(path for path in ours if path is not None):
        try:
            with open(definition, "rb") as file:
                text = file.read(65536).decode("utf-8", "replace")
        except OSError:
            continue
        if _GENERATION_PATH.search(text):
            found.append(definition.name)
    return tuple(found)


def _source(
    root: Path,
    product: Product,
    environ: Mapping[str, str],
    subject: Subject,
    wanted: tuple[str | None, str | None],
) -> dict[str, Any]:
    """Remote, channel, pin and local edits; git runs on our own repository only."""
    if subject.install is None or not subject.kind.updatable:
        return {}
    if subject.layout == "sealed":
        read_record(subject.install)  # a damaged one hides the source, too: it must be named
    if subject.checkout is None:
        return {}
    if subject.layout == "zip":
        return _release(subject.install, subject.checkout)
    program = find_git(environ)
    if subject.layout == "sealed" and not subject.checkout.is_dir():
        record = read_record(subject.install)
        told = _followed(root, product, subject.install, wanted, record.branch, record.remote_url)
        gone = f"{clean(str(subject.checkout), 300)}: it is gone; updates do without it."
        return {**told, "gone": {"source": gone}}
    source = read_source(subject.checkout, program, environ)
    fields: dict[str, Any] = {
        "ignored_programs": source.exec_keys,
        "unfinished": has_operation(source.git_dir),
        "old_git": not knows_merges(program, environ),
    }
    url, branch, _ = followed(subject.install, source)
    if subject.layout == "sealed":
        record = read_record(subject.install)
        branch, url = record.branch, record.remote_url
        fields["moved_to"] = _moved_to(source.address(record.remote_name), url) if record.remote_name else ""
    fields |= _followed(root, product, subject.install, wanted, branch, url)
    upstream = upstream_of(parse_remote(url), source.upstream_url)
    fields["fork_of"] = upstream.shown if upstream is not None else ""
    if not source.branch:
        fields["pinned"] = _tag_of(source.common_dir, source.head) or source.head[:12]
    if subject.layout == "sealed" and (subject.install.repo / "HEAD").is_file():
        edits = _edits(program, subject.install.repo, source, root, environ)
        fields["local_edits"] = {
            **{
                clean(path, 160): f"carried ({oid[:12]})" if oid else "carried (deleted)"
                for path, oid in edits.files.items()
            },
            **{clean(left.path, 160): f"not carried: {left.reason}" for left in edits.left},
        }
    return fields


def _moved_to(now: str, pinned: str) -> str:
    """The source's own remote where it is another place than the pinned one; an update asks whether to follow it, or stays."""
    if not now or now == pinned:
        return ""
    try:
        found = parse_remote(now)
        return "" if found.same_place(parse_remote(pinned)) else found.shown
    except NeduraError:
        return "an address that cannot be used"


def _followed(
    root: Path,
    product: Product,
    install: InstallPaths,
    wanted: tuple[str | None, str | None],
    branch: str,
    url: str,
) -> dict[str, Any]:
    """Where updates come from, and what decides which line of versions."""
    configured = read_config(root).text(channel_key(install.install_id))
    choice = choose_channel(
        branch=wanted[0],
        channel=wanted[1],
        configured=configured,
        pinned_branch=branch,
        retired=product.retired_channels,
    )
    return {"remote": parse_remote(url).shown, "follows": f"{choice.name} (from {choice.source})"}


def _release(install: InstallPaths, tree: Path) -> dict[str, Any]:
    """Address and local edits of an unpacked release; an archive can carry none of them, so that they stop an update."""
    from nedura.update.commit.zip_tree import changed_files  # only a release needs these
    from nedura.update.source.release import read_note
    from nedura.update.source.release_check import pinned_address

    note = read_note(tree)
    if note is None:
        return {}
    changed = changed_files(tree, note.files)
    return {
        "remote": pinned_address(install, note).shown,
        "follows": "its releases (from install)",
        "local_edits": {
            clean(path, 160): "not carried: an archive cannot carry it, and the update stops"
            for path in changed
        },
    }


def _edits(program: str, repo: Path, source: Source, root: Path, environ: Mapping[str, str]) -> Edits:
    """Local edits, read with a temporary index and temporary objects: nothing of ours or of the owner's is written."""
    inside = source.checkout == root or source.checkout in root.parents
    with tempfile.TemporaryDirectory(prefix="nedura-plan-") as name:
        objects = make_folder(Path(name) / "objects")
        git = Git(program=program, repo=repo, objects=objects, environ=environ)
        return read_edits(git, source, Path(name), untracked=not inside)


def _tag_of(common_dir: Path, head: str) -> str:
    """Name of a tag that is this very commit, from the files of the repository; empty without one."""
    tags = common_dir / "refs" / "tags"
    names = [path.name for path in sorted(tags.glob("*")) if path.is_file() and _line(path) == head]
    if names:
        return clean(names[0], 80)
    packed = common_dir / "packed-refs"
    try:
        with open(packed, "rb") as file:
            lines = file.read(8 << 20).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    last = ""
    for line in lines:
        oid, _, name = line.lstrip("^").partition(" ")
        if line.startswith("^") and oid == head:
            return clean(last, 80)
        last = name.removeprefix("refs/tags/") if name.startswith("refs/tags/") else ""
        if last and oid == head:
            return clean(last, 80)
    return ""


def _line(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(80).decode("ascii", "replace").strip()
