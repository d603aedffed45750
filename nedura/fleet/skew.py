"""Whether a member still runs what its install would start now (decision 31)."""

from __future__ import annotations

import time
from pathlib import Path

from nedura.errors import StoreError
from nedura.installs import CodeIdentity, running_code, sealed_install_of

__all__ = ["Skew"]


class Skew:
    """Compares a running process with its install's pointer or checkout, at most once in `ttl` seconds.

    Args:
        running: identity the process imported.
        anchor: a file of the code it runs.
        ttl: seconds that an answer counts.
    """

    def __init__(self, running: CodeIdentity, anchor: Path, ttl: float = 2.0) -> None:
        self._running = running
        self._anchor = anchor
        self._ttl = ttl
        self._asked = float("-inf")
        self._stale = False

    @property
    def stale(self) -> bool:
        """Whether a start now would give other code. Unknown is not stale."""
        now = time.monotonic()
        if now - self._asked >= self._ttl:
            self._asked = now
            self._stale = self._look()
        return self._stale

    def _look(self) -> bool:
        paths = sealed_install_of(self._anchor)
        if paths is not None:
            try:
                pointed = paths.pointed()
            except StoreError:
                return False
            return pointed is not None and pointed.name != self._running.generation
        now = running_code(self._anchor)
        return bool(now.code_sha and self._running.code_sha and now.code_sha != self._running.code_sha)
