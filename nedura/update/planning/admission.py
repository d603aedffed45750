"""Admission: which install an update is about, how it runs its code, and whether we may update it (facts/update.md 2.1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from nedura.errors import NeduraError, RefusedError, StoreError
from nedura.installs import (
    CodeIdentity,
    InstallPaths,
    checkout_of,
    find_installs,
    install_id_for,
    read_identity,
    release_of,
    running_code,
    sealed_install_of,
)
from nedura.product import Product
from nedura.text import clean
from nedura.update.generation.places import check_home_place
from nedura.update.generation.record import linked_source, read_record
from nedura.update.planning.install_kind import InstallKind, judge_kind
from nedura.update.planning.observe import Machine, observe

if TYPE_CHECKING:
    from nedura.update.parts import Refusal
    from nedura.update.run import Run

__all__ = ["Subject", "admit", "find_subject", "refusal_of"]


@attrs.frozen(kw_only=True)
class Subject:
    """What an update is about.

    Attributes:
        kind: how the code got here.
        install: the install, None when there is none of ours.
        layout: how it runs its code.
        code: identity of what is current.
        checkout: the owner's checkout or the unpacked release, when there is one.
    """

    kind: InstallKind
    install: InstallPaths | None = None
    layout: Literal["sealed", "checkout", "zip"] = "sealed"
    code: CodeIdentity = attrs.field(factory=CodeIdentity)
    checkout: Path | None = None


def find_subject(
    root_home: Path,
    product: Product,
    environ: Mapping[str, str],
    *,
    anchor: Path | None = None,
    machine: Machine | None = None,
) -> Subject:
    """Find the install that the running code belongs to, or that the root home has. Read-only.

    Args:
        root_home: the root home.
        product: names.
        environ: the real environment.
        anchor: a file of the running code; default this one.
        machine: places of the machine.
    """
    anchor = Path(__file__) if anchor is None else anchor
    kind = judge_kind(observe(root_home, product, environ, anchor=anchor, machine=machine), product)
    sealed = _sealed(root_home, anchor)
    if sealed is not None:
        return Subject(
            kind=_as_git(kind, product),
            install=sealed,
            layout="sealed",
            code=_current(sealed),
            checkout=_source(sealed),
        )
    checkout = checkout_of(anchor)
    if checkout is None:
        return _unpacked(root_home, anchor, kind)
    install = InstallPaths(root_home, install_id_for(checkout))
    return Subject(
        kind=kind, install=install, layout="checkout", code=running_code(anchor), checkout=checkout
    )


def _unpacked(root_home: Path, anchor: Path, kind: InstallKind) -> Subject:
    """A tree without git: a release that says what it is, or nobody knows what."""
    release = release_of(anchor)
    if release is None:
        return Subject(kind=_as_bare(kind), layout="zip", code=running_code(anchor))
    install = InstallPaths(root_home, install_id_for(release))
    return Subject(
        kind=_as_release(kind, release, install),
        install=install,
        layout="zip",
        code=running_code(anchor),
        checkout=release,
    )


def _as_release(kind: InstallKind, tree: Path, install: InstallPaths) -> InstallKind:
    """An unpacked release is updated from the address that was pinned, or else that its note names; without one it is not."""
    from nedura.update.source.release import archive_remote, read_note  # only a release needs it
    from nedura.update.source.release_check import pinned_address

    if not kind.updatable:
        return kind
    if os.path.lexists(tree / ".git"):
        return _as_released_and_git(kind)
    try:
        note = read_note(tree)
        if note is None:
            archive_remote("")
        else:
            pinned_address(install, note)
    except NeduraError as error:
        return attrs.evolve(
            kind,
            kind="zip",
            updatable=False,
            mechanism="unpack the new release over it, or clone its repository and run there: ./run install",
            code="no_address",
            reason=f"This unpacked release cannot be updated from here: {error.message}",
            exit_code=1,
        )
    return attrs.evolve(kind, kind="zip")


def _as_released_and_git(kind: InstallKind) -> InstallKind:
    """A release with a `.git` that follows nobody: neither git nor the swap may touch it before its owner has said whose it is."""
    return attrs.evolve(
        kind,
        kind="zip",
        updatable=False,
        mechanism="move .git out of the folder, and its releases go on; or give it a remote and check out what that has",
        code="git_in_release",
        reason="This is an unpacked release, and its folder was made a git repository (git init) that follows no remote.",
        exit_code=1,
    )


def _as_bare(kind: InstallKind) -> InstallKind:
    """A tree without git and without any other owner: nobody recorded where it came from, so no plan may promise an update."""
    if not kind.updatable:
        return kind
    return attrs.evolve(
        kind,
        updatable=False,
        mechanism="git clone its repository, then run there: ./run install",
        code="no_git",
        reason="This code lies in a folder without .git, and nothing says where it came from.",
        exit_code=1,
    )


def _as_git(kind: InstallKind, product: Product) -> InstallKind:
    """A root home with a sealed install is updated through it, from wherever the command was started; an image never is."""
    if kind.updatable or kind.code.startswith("image-marker") or kind.code in ("external", "commit-build"):
        return kind
    return kind if kind.kind in ("docker", "nix", "nixos", "home-manager") else InstallKind(
        kind="git", updatable=True, mechanism=f"{product.command} update", conflicts=kind.conflicts
    )  # fmt: skip


def _sealed(root_home: Path, anchor: Path) -> InstallPaths | None:
    """The sealed install of the running code; else the one of its checkout, else the only one of the root home.

    A home with a sealed install is updated through it, wherever the command came from: never the checkout beside it.
    """
    own = sealed_install_of(anchor)
    if own is not None:
        return own
    found = [paths for paths in find_installs(root_home) if _is_sealed(paths)]
    checkout = checkout_of(anchor)
    wanted = install_id_for(checkout) if checkout is not None else ""
    mine = [paths for paths in found if paths.install_id == wanted]
    return mine[0] if mine else found[0] if len(found) == 1 else None


def _is_sealed(paths: InstallPaths) -> bool:
    try:
        return read_record(paths).layout == "sealed"
    except StoreError:
        return False


def _source(paths: InstallPaths) -> Path | None:
    try:
        return Path(read_record(paths).source)
    except StoreError:
        return linked_source(paths)


def _current(paths: InstallPaths) -> CodeIdentity:
    try:
        generation = paths.pointed()
        return read_identity(generation) if generation is not None else CodeIdentity()
    except StoreError:
        return CodeIdentity(install_id=paths.install_id)


def refusal_of(kind: InstallKind) -> Refusal | None:
    """The one answer of every surface to an install that is not ours to update; None when it is."""
    from nedura.update.parts import Refusal  # the plan, which never refuses, need not load the pipeline

    if kind.updatable:
        return None
    return Refusal(code=kind.code, message=kind.reason, command=kind.mechanism, exit_code=kind.exit_code)


async def admit(run: Run) -> Refusal | None:
    """Find the install and judge it; sets `install`, `layout` and `before` on the run.

    Args:
        run: the update.

    Raises:
        RefusedError: the root home is another user's, or others can write to it.
    """
    subject = await asyncio.to_thread(find_subject, run.root_home, run.product, run.environ)
    run.install, run.layout, run.before = subject.install, subject.layout, subject.code
    run.notes["subject"] = subject
    refusal = refusal_of(subject.kind)
    if refusal is None:
        await asyncio.to_thread(_check_place, run.root_home, subject)
    return refusal


def _check_place(root_home: Path, subject: Subject) -> None:
    check_home_place(root_home)
    if subject.install is not None and subject.install.root_home != root_home:
        if os.path.realpath(subject.install.root_home) == os.path.realpath(root_home):
            return
        raise RefusedError(
            f"This command belongs to the install in {clean(str(subject.install.root_home), 200)}, "
            f"and the home in use is {clean(str(root_home), 200)}.",
            advice=f"Start the command of that home: {clean(str(root_home / 'bin'), 200)}/...",
        )
