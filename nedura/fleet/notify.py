"""Talking to systemd over the notify socket (sd_notify(3)); silent where nobody listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

__all__ = ["Notifier"]


class Notifier:
    """Sends READY, STOPPING, STATUS and WATCHDOG to the manager that asked for them.

    Args:
        environ: the environment; `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` are read.
        pid: pid of the process they must be meant for.
    """

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog(environ, os.getpid() if pid is None else pid)

    def send(self, **fields: str) -> bool:
        """Send fields as one datagram; False when nobody listens."""
        if not self._address.startswith(("/", "@")):
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        data = "\n".join(f"{name}={value}" for name, value in fields.items()).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
                link.connect(address)
                link.send(data)
        except OSError:
            return False
        return True


def _watchdog(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds of the watchdog leash, None when the manager set none for this process."""
    value, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not value.isdigit() or int(value) == 0 or (owner and owner != str(pid)):
        return None
    return int(value) / 1_000_000
