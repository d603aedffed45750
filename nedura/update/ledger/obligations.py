"""What an update owes, on disk before the act that creates the debt: the tail of its own run, and the fleet's restart.

Each can be armed, cleared, and handed back exactly as it was found (facts/update.md 5.5, 8.5).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordMissing, StoreError
from nedura.homes import DEFAULT_PROFILE, profiles_root
from nedura.installs import CodeIdentity
from nedura.locks import locked
from nedura.product import Product
from nedura.records import make_folder, read_bytes, remove, write_bytes, write_json
from nedura.update.ledger import restart_record
from nedura.update.ledger.restart_record import RestartRecord

__all__ = ["Attempts", "RestartObligation", "TailObligation", "restart_folder"]

TAIL_LINE: Final = b"The update's completion is pending.\n"
RETRY_AFTER: Final = 15 * 60.0
"""Seconds between tries of the tail from the second failure on."""
MAX_ATTEMPTS: Final = 6
"""Failures after which only a person's update tries again."""


def _found(path: Path) -> bytes | None:
    """What stands in a record's place; None when nothing does.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return read_bytes(path)
    except RecordMissing:
        return None


def _is_missing(path: Path) -> bool:
    """Whether nothing can be there; a place that we may not look at is not missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _put_back(path: Path, found: bytes | None) -> None:
    if found is None:
        remove(path)
    else:
        write_bytes(path, found)


@attrs.frozen
class Attempts:
    """How often the tail was tried at a launch, and when last (unix seconds)."""

    count: int = 0
    last: float = 0.0

    def due(self, now: float) -> bool:
        """Whether a launch may try now: at once after the first failure, then every 15 minutes, six times in all."""
        if self.count >= MAX_ATTEMPTS:
            return False
        return self.count < 2 or not self.last <= now < self.last + RETRY_AFTER  # a future cannot have been

    @property
    def exhausted(self) -> bool:
        """Whether launches have stopped trying."""
        return self.count >= MAX_ATTEMPTS


class TailObligation:
    """The rest of an update after its commit point.

    Args:
        state: the install's state folder, `<root home>/installs/<id>/`.
    """

    def __init__(self, state: Path) -> None:
        self.path = state / "source-completion-pending"
        self.attempts_path = state / "source-completion-attempts"

    def arm(self) -> Callable[[], None]:
        """Arm it and return what puts back exactly what was found.

        Raises:
            StoreError: it cannot be written; the commit must not happen.
        """
        make_folder(self.path.parent)
        found = _found(self.path)
        if found is None or found != TAIL_LINE:
            write_bytes(self.path, TAIL_LINE)
        return lambda: _put_back(self.path, found)

    def is_armed(self) -> bool:
        """Whether it is owed; a record that cannot be read is owed."""
        try:
            return _found(self.path) is not None
        except StoreError:
            return True

    def clear(self) -> None:
        """Nothing of the tail is owed any more."""
        remove(self.path)
        remove(self.attempts_path)

    def attempts(self) -> Attempts:
        """Tries so far; a damaged counter counts as none."""
        try:
            text = (_found(self.attempts_path) or b"").split()
            return Attempts(int(text[0]), float(text[1]) if len(text) > 1 else 0.0)
        except (ValueError, IndexError, StoreError):
            return Attempts()

    def count_attempt(self, now: float) -> Attempts:
        """Count a try before it begins, so that one that kills the process counts too.

        Raises:
            StoreError: it cannot be counted; then do not try.
        """
        tried = Attempts(self.attempts().count + 1, now)
        write_bytes(self.attempts_path, f"{tried.count} {now:.0f}\n".encode())
        return tried


def restart_folder(environ: Mapping[str, str], product: Product) -> Path:
    """Where host-wide records live: `<PREFIX>_GATEWAY_LOCK_DIR`, else the XDG state folder."""
    named = product.setting(environ, "GATEWAY_LOCK_DIR")
    if named:
        return Path(named)
    state = environ.get("XDG_STATE_HOME", "").strip()
    base = (
        Path(state)
        if state.startswith("/")
        else Path(environ.get("HOME") or os.path.expanduser("~"), ".local/state")
    )
    return base / product.command / "gateway-locks"


class RestartObligation:
    """The restart that the fleet owes, one record per install and host.

    Args:
        folder: the host-wide folder (`restart_folder`).
        install: what is shared: the install's folder (sealed) or checkout, whose real path keys the record.
        root_home: where the fallback goes when the host folder cannot be written.
    """

    def __init__(self, folder: Path, install: Path, root_home: Path) -> None:
        key = hashlib.sha256(os.path.realpath(install).encode()).hexdigest()[:16]
        self.folder = folder
        self.host_path = folder / f"host-update-restart-{key}.json"
        self.fallback_path = root_home / "fleet_restart_pending"
        self.profiles = profiles_root(root_home)

    @property
    def _mutex(self) -> Path:
        return self.folder / ".host-update-restart.mutex"

    def _usable_path(self) -> Path:
        """Where the record goes now.

        Raises:
            StoreError: the host folder cannot be written and other profiles exist, so one home's file would not do.
        """
        try:
            make_folder(self.folder)
            with locked(self._mutex, what="the restart record"):
                return self.host_path
        except StoreError as error:
            if self.profiles.is_dir() and any(self.profiles.iterdir()):
                raise StoreError(
                    f"The restart record cannot be kept: {error.message}", advice=error.advice
                ) from error
            return self.fallback_path

    def read(self) -> RestartRecord | None:
        """What is owed; None when nothing is. Unreadable means owed."""
        for path in (self.host_path, self.fallback_path):
            try:
                data = None if _is_missing(path) else _found(path)
            except StoreError:
                return RestartRecord(readable=False)
            if data is not None:
                return restart_record.decode(data)
        return None

    def arm(
        self,
        *,
        now: float,
        owner: str,
        expected: CodeIdentity,
        inventory: Iterable[Mapping[str, Any]] | None,
        profile: str = DEFAULT_PROFILE,
    ) -> Callable[[], None]:
        """Arm it for some code and return what puts back exactly what was found.

        Raises:
            StoreError: it cannot be written; the commit must not happen.
        """
        rows = None if inventory is None else list(inventory)
        path = self._usable_path()
        if rows == [] and _found(path) is None:
            return lambda: None  # provably nothing runs: nothing is owed
        with locked(self._mutex if path == self.host_path else path.with_name(".fleet_restart.mutex")):
            found = _found(path)
            record = restart_record.armed(
                found,
                now=now,
                pid=os.getpid(),
                profile=profile,
                expected=expected,
                owner=owner,
                inventory=rows,
            )
            write_json(path, restart_record.encode(record))
        return lambda: self._hand_back(path, owner, found)

    def _hand_back(self, path: Path, owner: str, found: bytes | None) -> None:
        """Put back what was found, unless another run has taken a stake meanwhile: then only ours goes."""
        with locked(self._mutex if path == self.host_path else path.with_name(".fleet_restart.mutex")):
            data = _found(path)
            if data is None:
                _put_back(path, found)
                return
            record = restart_record.decode(data)
            before = restart_record.decode(found).owners if found is not None else ()
            others = [name for name in record.owners if name != owner and name not in before]
            if others and record.readable:
                write_json(path, restart_record.encode(attrs.evolve(record, owners=(*before, *others))))
            else:
                _put_back(path, found)

    def change(self, how: Callable[[RestartRecord], RestartRecord]) -> None:
        """Change the record under its mutex; nothing when there is none or it cannot be understood.

        Raises:
            StoreError: it cannot be written.
        """
        for path in (self.host_path, self.fallback_path):
            if _is_missing(path):
                continue
            with locked(self._mutex if path == self.host_path else path.with_name(".fleet_restart.mutex")):
                data = _found(path)
                record = restart_record.decode(data) if data is not None else None
                if record is not None and record.readable:
                    write_json(path, restart_record.encode(how(record)))

    def clear(self, seen: RestartRecord | None = None) -> None:
        """Nothing is owed. Only after positive proof (`restart_record.settled`).

        Args:
            seen: the record that the proof is about; one that was armed or changed since stays.

        Raises:
            StoreError: it cannot be removed.
        """
        for path in (self.host_path, self.fallback_path):
            if _is_missing(path):
                continue
            with locked(self._mutex if path == self.host_path else path.with_name(".fleet_restart.mutex")):
                data = _found(path)
                if data is not None and (seen is None or restart_record.decode(data) == seen):
                    remove(path)
