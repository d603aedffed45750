"""The sign-in's keepalive of an open shell: it is the one of the profile that the shell works on now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nedura.signin import start_nous_auth_keepalive, stop_nous_auth_keepalive

__all__ = ["Alive"]


class Alive:
    """Keeps the login of one profile at a time alive.

    Args:
        home: the profile's home to begin with.
        start: starts a keepalive.
        stop: stops it, within a second.
    """

    def __init__(
        self,
        home: Path,
        *,
        start: Callable[[Path], object] = start_nous_auth_keepalive,
        stop: Callable[[Path], object] = stop_nous_auth_keepalive,
    ) -> None:
        self._start, self._stop = start, stop
        self._home: Path | None = home
        start(home)

    def follow(self, home: Path) -> None:
        """Go to another profile. Blocks for up to a second; the same profile changes nothing."""
        if home == self._home:
            return
        self.end()
        self._home = home
        self._start(home)

    def end(self) -> None:
        """Stop; a second time does nothing."""
        if self._home is not None:
            self._stop(self._home)
            self._home = None
