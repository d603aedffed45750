"""`install.json`: who owns an install, where it is fetched from, how it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import attrs

from nedura.errors import RecordCorrupt, RecordMissing, StoreError
from nedura.installs import InstallPaths
from nedura.records import read_json, write_json
from nedura.text import clean
from nedura.update.source.owner_checkout import Source

__all__ = ["InstallRecord", "followed", "linked_source", "own_branch", "read_record", "write_record"]


@attrs.frozen(kw_only=True)
class InstallRecord:
    """The record of one install.

    Attributes:
        install_id: its id.
        source: real path of the owner's checkout, or of the unpacked release.
        remote_name: name of the remote in the checkout, empty for the checkout itself.
        remote_url: the pinned address; may hold a credential, so the file is 0600.
        branch: branch that is followed, empty when pinned to a release tag.
        upstream_url: pinned address of what the remote is a fork of, empty until one was seen.
        layout: sealed, checkout or zip (an unpacked release).
        command: launcher's name.
        created: ISO time.
        python: base interpreter.
        environment: `managed`, or `none` when the host provides the packages.
        packages: folders of the host's packages, where it provides them.
        extra: keys of other versions, kept.
    """

    install_id: str
    source: str
    remote_url: str = attrs.field(repr=False)
    remote_name: str = ""
    branch: str = ""
    upstream_url: str = attrs.field(default="", repr=False)
    layout: Literal["sealed", "checkout", "zip"] = "sealed"
    command: str = "nedura"
    created: str = ""
    python: str = ""
    environment: Literal["managed", "none"] = "managed"
    packages: tuple[str, ...] = ()
    extra: dict[str, Any] = attrs.field(factory=dict)


def read_record(paths: InstallPaths) -> InstallRecord:
    """Read `install.json`.

    Raises:
        StoreError: missing, unreadable or corrupt.
    """
    try:
        record = read_json(paths.record)
    except (RecordMissing, RecordCorrupt) as error:
        raise type(error)(error.message, advice=_again(paths)) from error
    known = {field.name for field in attrs.fields(InstallRecord)} - {"extra", "packages"}
    try:
        fields = {key: str(value) for key, value in record.items() if key in known}
        extra = {key: value for key, value in record.items() if key not in {*known, "schema", "packages"}}
        packages = tuple(map(str, record.get("packages", ())))
        return InstallRecord(**fields, packages=packages, extra=extra)  # type: ignore[arg-type]
    except (AttributeError, TypeError) as error:
        raise RecordCorrupt(
            f"install.json of install {paths.install_id} makes no sense.", advice=_again(paths)
        ) from error


def _again(paths: InstallPaths) -> str:
    """What brings a sealed install's record back; empty for others, whose next update writes it."""
    source = linked_source(paths)
    if source is not None:
        return f"Install it again: ./run install, in {clean(str(source), 300)}"
    return (
        "Install it again: ./run install, in the folder that it came from"
        if paths.current.is_symlink()
        else ""
    )


def linked_source(paths: InstallPaths) -> Path | None:
    """Where a sealed install came from, by its link: known also where its record is damaged. None without one."""
    try:
        return Path(os.readlink(paths.source))
    except OSError:
        return None


def own_branch(source: Source) -> str:
    """Branch that the first update of a checkout begins to follow: the remote's default where it has none of the checked-out name."""
    if source.remote_name and not source.tracking and source.default_branch:
        return source.default_branch
    return source.remote_branch or source.branch or "main"


def followed(paths: InstallPaths, source: Source) -> tuple[str, str, str]:
    """What an update of a checkout follows, whatever is checked out in the meantime: the recorded address, branch and name of the remote;
    before its first update as a checkout what that would record.
    """
    try:
        record = read_record(paths)
        if record.layout != "zip":
            return record.remote_url, record.branch, record.remote_name
    except StoreError:
        pass  # an update names it
    return source.remote_url or str(source.checkout), own_branch(source), source.remote_name


def write_record(paths: InstallPaths, record: InstallRecord) -> None:
    """Write `install.json`.

    Raises:
        StoreError: it cannot be written.
    """
    fields = attrs.asdict(record)
    write_json(paths.record, {"schema": 1, **fields.pop("extra"), **fields}, 0o600)
