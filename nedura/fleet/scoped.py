"""Locks on what only one gateway of a host may use, such as a bot token; released by the kernel when the holder dies."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.fleet.claim import PidRecord
from nedura.locks import FileLock
from nedura.product import NEDURA, Product
from nedura.records import check_folder, make_folder

__all__ = ["ScopedLock", "lock_folder"]


def lock_folder(environ: Mapping[str, str], product: Product = NEDURA) -> Path:
    """Where scoped locks of this user are: the variable, else the state folder of the user.

    Args:
        environ: the environment.
        product: whose variable.
    """
    named = product.setting(environ, "GATEWAY_LOCK_DIR")
    if named:
        return Path(named)
    state = environ.get("XDG_STATE_HOME", "")
    base = (
        Path(state)
        if state.startswith("/")
        else Path(environ.get("HOME") or os.path.expanduser("~")) / ".local/state"
    )
    return base / product.name / "gateway-locks"


class ScopedLock:
    """One scope and identity, e.g. `telegram` and a bot token. The identity itself is never written, only its hash.

    Args:
        scope: what kind of thing.
        identity: which one; secret.
        home: home of the gateway that wants it.
        folder: the lock folder.
        metadata: facts for people.
    """

    def __init__(
        self,
        scope: str,
        identity: str,
        *,
        home: Path,
        folder: Path,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.scope = scope
        self.identity_hash = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self.home = home
        self.metadata = dict(metadata or {})
        self._folder = folder
        self._lock = FileLock(folder / f"{scope}-{self.identity_hash}.lock", f"The {scope} lock")

    @property
    def held(self) -> bool:
        """Whether this object holds it."""
        return self._lock.held

    def try_acquire(self) -> bool:
        """Take it if nobody has it; True too when this object has it already.

        Raises:
            StoreError: the folder or file cannot be used safely.
        """
        if self._lock.held:
            return True
        make_folder(self._folder)
        check_folder(self._folder)
        if not self._lock.try_acquire():
            return False
        record = {
            **attrs.asdict(PidRecord.of_this_process(self.home)),
            "scope": self.scope,
            "identity_hash": self.identity_hash,
            "metadata": self.metadata,
        }
        text = f"{os.getpid()}\n{json.dumps(record, separators=(',', ':'))}\n"
        os.pwrite(self._lock.fileno(), text.encode(), 0)
        return True

    def release(self) -> None:
        """Let go."""
        self._lock.release()
