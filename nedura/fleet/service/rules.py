"""What the service verbs refuse, as pure judgements (facts/runtime.md 4.5)."""

from __future__ import annotations

import os
from pathlib import Path

from nedura.errors import RefusedError, UsageError
from nedura.fleet.scope import home_key, same_home
from nedura.fleet.service.manager import ServiceState
from nedura.fleet.service.place import ServicePlace
from nedura.homes import profiles_root, root_home
from nedura.text import clean

__all__ = [
    "check_definition",
    "check_home",
    "check_owner",
    "check_place",
    "check_rights",
    "left_behind",
    "pinned_here",
]


def check_home(home: Path, place: ServicePlace) -> None:
    """Refuse a home that is emptied one day, or that belongs to somebody else.

    Raises:
        RefusedError: it is one.
    """
    check_owner(home, place)
    if place.is_temporary(home):
        raise RefusedError(
            f"{clean(str(home), 200)} is in a temporary folder, so no service is made for it.",
            advice="Set NEDURA_HOME to a lasting folder.",
        )


def check_owner(home: Path, place: ServicePlace) -> None:
    """Refuse the home of another user: root leaves no file and no process in it (threats.md 4).

    Raises:
        RefusedError: with the command line that has the right user.
    """
    try:
        owner = home.stat().st_uid
    except FileNotFoundError:
        raise RefusedError(
            f"There is no home at {clean(str(home), 200)}.", advice="Run: nedura install --source DIR"
        ) from None
    except OSError as error:
        raise RefusedError(f"{clean(str(home), 200)} cannot be used: {error.strerror}.") from error
    if owner != place.account.uid:
        raise RefusedError(
            f"{clean(str(home), 200)} belongs to another user than {place.account.name}.",
            advice=f"Run as its owner: sudo -u '#{owner}' nedura ...",
        )


def check_place(scope: str, place: ServicePlace, *, run_as: str = "") -> None:
    """Refuse what this machine or user cannot carry.

    Raises:
        RefusedError: a user unit in a container, or a system unit for root that nobody asked for by name.
        UsageError: a system unit needs root; a user unit must not be made by root for somebody else.
    """
    if scope == "system":
        check_rights(scope, place)
        if place.account.uid == 0 and run_as != "root":
            raise RefusedError(
                "A system service would run as root.", advice="Name its user: --run-as-user USER (or root)."
            )
        return
    if place.container:
        raise RefusedError(
            "In a container no user manager outlives this command.", advice="Run: nedura gateway run"
        )
    check_rights(scope, place)


def check_rights(scope: str, place: ServicePlace) -> None:
    """Refuse to act without, or with too many, rights.

    Raises:
        UsageError: with the command that has the right ones.
    """
    if scope == "system" and place.euid != 0:
        raise UsageError("A system service needs root.", advice="Run it again with sudo.")
    if scope != "system" and place.euid != place.account.uid:
        raise UsageError(
            f"The service of {place.account.name} is not managed by root.",
            advice=f"Run it without sudo, or: sudo -u {place.account.name} nedura gateway ...",
        )


def pinned_here(state: ServiceState, home: Path) -> bool:
    """Whether a definition serves this home. One that names no home serves nobody's."""
    return state.home is not None and same_home(home_key(state.home), home_key(home))


def left_behind(state: ServiceState, home: Path) -> bool:
    """Whether a definition is pinned to a profile of this install whose folder is gone: it can only fail, and nobody else owns it."""
    if state.home is None or os.path.lexists(state.home):
        return False
    folder = profiles_root(root_home(home))
    return same_home(home_key(os.path.dirname(state.home.rstrip("/"))), home_key(folder))


def check_definition(state: ServiceState, home: Path, verb: str) -> None:
    """A definition that pins another home is left alone by every verb, force included (C080, C082, #106611).

    Raises:
        RefusedError: it pins another home, names none, or is turned off on purpose.
    """
    if state.masked:
        raise RefusedError(
            f"{clean(state.name)} is masked: somebody turned it off.", advice=f"Unmask it, then {verb} again."
        )
    if not state.installed:
        return
    if state.home is None:
        raise RefusedError(f"{clean(state.name)} names no home, so it is left alone.")
    if not pinned_here(state, home):
        raise RefusedError(
            f"{clean(state.name)} belongs to another home ({clean(state.home, 200)}), so it is left alone.",
            advice=f"To {verb} it, set NEDURA_HOME to that home.",
        )
