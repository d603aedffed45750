"""Where definitions live and whom they belong to: the account, its folders, and what counts as temporary (decision 48). A seam."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs

from nedura.errors import UsageError
from nedura.text import clean

__all__ = ["Account", "ServicePlace", "account_named", "account_of", "real_place"]


@attrs.frozen(kw_only=True)
class Account:
    """A user of this machine, from its user database, not from variables (#98699).

    Attributes:
        name: login name.
        uid, gid: numbers.
        group: name of the primary group.
        home: the account's real home.
    """

    name: str
    uid: int
    gid: int
    group: str
    home: Path


@attrs.frozen(kw_only=True)
class ServicePlace:
    """One machine as the service verbs see it.

    Attributes:
        platform: `sys.platform`.
        account: whose services these are (behind sudo: who called it).
        euid: who we are.
        user_units: folder of the account's own units.
        system_units: folder of the machine's units.
        agents: folder of the account's LaunchAgents.
        temporary: folders whose homes get no service.
        container: whether this is a container without a systemd of its own, where no user manager outlives us.
        path_folders: what a service's PATH begins with, as far as the folders exist.
    """

    platform: str
    account: Account
    euid: int
    user_units: Path
    system_units: Path = Path("/etc/systemd/system")
    agents: Path = Path()
    temporary: tuple[Path, ...] = ()
    container: bool = False
    path_folders: tuple[Path, ...] = ()

    def is_temporary(self, home: Path) -> bool:
        """Whether a home lies in a folder that is emptied one day (#44267)."""
        real = Path(os.path.realpath(home))
        return any(folder == real or folder in real.parents for folder in self.temporary)


def account_named(name: str) -> Account:
    """An account of the user database.

    Raises:
        UsageError: there is none of that name.
    """
    import grp
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"There is no user {clean(name, 64)}.") from None
    try:
        group = grp.getgrgid(entry.pw_gid).gr_name
    except KeyError:
        group = str(entry.pw_gid)
    return Account(
        name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, group=group, home=Path(entry.pw_dir)
    )


def _caller(environ: Mapping[str, str]) -> Account:
    """Whose services are meant: behind sudo the one who called it."""
    invoker = environ.get("SUDO_USER", "")
    if os.geteuid() == 0 and invoker and invoker != "root":
        return account_named(invoker)
    return account_of(os.geteuid(), environ)


def account_of(uid: int, environ: Mapping[str, str]) -> Account:
    """The account of a user number. In a container it may have no entry in the user database: then it is called by its number.

    Args:
        uid: user number.
        environ: its environment, for the home of one without an entry.
    """
    import pwd

    try:
        return account_named(pwd.getpwuid(uid).pw_name)
    except KeyError:
        gid = os.getegid()
        home = Path(environ.get("HOME") or "/")
        return Account(name=str(uid), uid=uid, gid=gid, group=str(gid), home=home)


def real_place(environ: Mapping[str, str] | None = None) -> ServicePlace:
    """This machine.

    Args:
        environ: the environment; default this process's.

    Raises:
        UsageError: the account is not in the user database.
    """
    environ = os.environ if environ is None else environ
    account = _caller(environ)
    config = environ.get("XDG_CONFIG_HOME", "")
    base = (
        Path(config)
        if config and os.path.isabs(config) and account.uid == os.geteuid()
        else account.home / ".config"
    )
    temporary = {
        Path(os.path.realpath(folder)) for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    }
    tools = (".local/bin", ".cargo/bin", "go/bin", ".npm-global/bin")
    return ServicePlace(
        platform=sys.platform,
        account=account,
        euid=os.geteuid(),
        user_units=base / "systemd" / "user",
        agents=account.home / "Library" / "LaunchAgents",
        temporary=tuple(sorted(temporary)),
        container=not os.path.isdir("/run/systemd/system")
        and any(os.path.exists(mark) for mark in ("/.dockerenv", "/run/.containerenv")),
        path_folders=tuple(account.home / tool for tool in tools),
    )
