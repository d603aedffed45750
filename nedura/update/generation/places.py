"""Who else could swap a folder under us: judged before anything is built in it (threats.md 3)."""

from __future__ import annotations

import functools
import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

from nedura.errors import ForeignOwner, RefusedError
from nedura.text import clean

__all__ = ["check_home_place", "check_parents", "check_private", "is_exposed", "is_shielded", "private_group"]

Stat = Callable[[Path], os.stat_result]


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    while not path.exists():
        path = path.parent
    return path


def _complaint(folder: Path, info: os.stat_result, me: int, child: os.stat_result | None) -> str:
    """What is wrong with one folder; empty when nothing is."""
    name = clean(str(folder), 300)
    if info.st_uid not in (0, me):
        return f"{name} belongs to user {info.st_uid}"
    if not info.st_mode & 0o022:
        return ""
    if info.st_mode & stat.S_ISVTX and child is not None and child.st_uid in (0, me):
        return ""  # sticky: nobody else can rename or remove what lies in it
    return f"{name} can be written by other users"


def _way_out(folder: Path, info: os.stat_result, me: int) -> str:
    """What helps: a shared folder (sticky) stays as it is for all its users, and the mode is not what a foreign owner is about."""
    if info.st_uid not in (0, me) or info.st_mode & stat.S_ISVTX:
        return "Choose a folder of your own; in a shared one such as /tmp make it first."
    return f"Run: chmod go-w {clean(str(folder), 300)}  (or choose another folder)"


def check_parents(path: Path, *, me: int | None = None, look: Stat = os.stat) -> None:
    """Refuse a place that somebody else could swap: each folder up to `/` must be ours or root's and not writable by others.

    A sticky folder (such as /tmp) is accepted when what lies in it is ours and not writable by others.

    Raises:
        RefusedError: names the first bad folder and what to do.
    """
    me = os.geteuid() if me is None else me
    real = Path(os.path.realpath(_existing(path)))
    child: os.stat_result | None = None
    for folder in (real, *real.parents):
        info = look(folder)
        complaint = _complaint(folder, info, me, child)
        if complaint:
            raise RefusedError(
                f"{complaint}, so {clean(str(path), 300)} is no safe place.",
                advice=_way_out(folder, info, me),
            )
        child = info


def check_home_place(home: Path, *, me: int | None = None, look: Stat = os.stat) -> None:
    """`check_parents` of a root home, and the home itself must be ours: root never works in another user's home (decision 53).

    Raises:
        ForeignOwner: it is another user's.
        RefusedError: others can write to a folder above it.
    """
    me = os.geteuid() if me is None else me
    if home.exists():
        owner = look(home).st_uid
        if owner != me:
            raise ForeignOwner(
                f"{clean(str(home), 300)} belongs to user {owner}.",
                advice=f"Run it as that user: sudo -u '#{owner}' ...",
            )
    check_parents(home, me=me, look=look)


def is_shielded(folder: Path, *, me: int | None = None, look: Stat = os.stat) -> bool:
    """Whether a folder lies below one that only we can enter."""
    me = os.geteuid() if me is None else me
    above = (look(parent) for parent in Path(os.path.realpath(folder)).parents)
    return any(info.st_uid == me and not info.st_mode & 0o077 for info in above)


@functools.cache
def private_group(
    user: int,
    *,
    account: Callable[[int], pwd.struct_passwd] = pwd.getpwuid,
    group: Callable[[int], grp.struct_group] = grp.getgrgid,
) -> int | None:
    """The group that a user is alone in: the first one of the account, with its name and no other member (as `pam_umask` knows it, which
    gives such users umask 002). None for root, and where there is none.

    Args:
        user: user number.
        account: the user database.
        group: the group database.
    """
    if user == 0:
        return None
    try:
        entry = account(user)
        found = group(entry.pw_gid)
    except KeyError:
        return None
    alone = found.gr_name == entry.pw_name and set(found.gr_mem) <= {entry.pw_name}
    return found.gr_gid if alone else None


def is_exposed(
    info: os.stat_result, *, me: int | None = None, own_group: Callable[[int], int | None] = private_group
) -> bool:
    """Whether somebody else could change what a stat describes: another user's, or writable by others (a link's mode says nothing).

    Args:
        info: what stands there.
        me: user number, default ours.
        own_group: the group of a user that nobody else is in.
    """
    me = os.geteuid() if me is None else me
    if info.st_uid not in (0, me):
        return True
    if stat.S_ISLNK(info.st_mode) or not info.st_mode & 0o022:
        return False
    return bool(info.st_mode & 0o002) or info.st_gid != own_group(me)


def check_private(folder: Path, *, me: int | None = None, look: Stat = os.stat) -> None:
    """Refuse a source that others can write to. Below a folder that only we can enter, modes do not matter.

    Raises:
        RefusedError: names the first bad folder and what to do.
    """
    me = os.geteuid() if me is None else me
    real = Path(os.path.realpath(folder))
    if is_shielded(real, me=me, look=look):
        return
    if look(real).st_uid != me:
        owner = look(real).st_uid
        raise ForeignOwner(
            f"{clean(str(real), 300)} belongs to user {owner}.",
            advice=f"Run it as that user: sudo -u '#{owner}' ...",
        )
    check_parents(real, me=me, look=look)
