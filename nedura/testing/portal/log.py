"""The portal's request log: every request with what it carried as fingerprints, never as secrets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.records import append_line
from nedura.text import clean

__all__ = ["LogEntry", "RequestLog", "fingerprint"]


def fingerprint(secret: str) -> str:
    """First 12 hex digits of the SHA-256, the form in which logs name a token; empty for none."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:12] if secret else ""


@attrs.frozen(kw_only=True)
class LogEntry:
    """One finished request.

    Attributes:
        number: position in the log, from 1.
        started, ended: portal clock in unix seconds.
        route: a name of `knobs.ROUTES`, or `none`.
        status: HTTP status sent, 0 when the connection was dropped.
        error: JSON error code sent.
        fault: label of the planted fault it met.
        in_flight: requests on the same route that were open when this one began, itself included.
        carried: kind of credential -> fingerprint.
    """

    number: int
    started: float
    ended: float
    method: str
    path: str
    route: str
    status: int
    error: str = ""
    fault: str = ""
    agent: str = ""
    host: str = ""
    in_flight: int = 1
    carried: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define
class RequestLog:
    """In memory, and as JSON lines in `file` when one is named; `listener` hears of each request."""

    file: Path | None = None
    listener: Callable[[LogEntry], None] | None = None
    entries: list[LogEntry] = attrs.field(factory=list)
    _open: dict[str, int] = attrs.field(factory=dict)

    def begin(self, route: str) -> int:
        """Count a request in; returns how many are now open on its route."""
        self._open[route] = self._open.get(route, 0) + 1
        return self._open[route]

    def end(self, route: str, **fields: Any) -> None:
        """Count a request out and record it."""
        self._open[route] -= 1
        for name in ("path", "agent", "host"):
            fields[name] = clean(fields.get(name, ""), 200)
        entry = LogEntry(number=len(self.entries) + 1, route=route, **fields)
        self.entries.append(entry)
        if self.file is not None:
            append_line(self.file, json.dumps(attrs.asdict(entry), separators=(",", ":")))
        if self.listener is not None:
            self.listener(entry)

    def on(self, route: str) -> list[LogEntry]:
        """Entries of one route; a prefix ending in a dot means the whole group (`anon.`)."""
        return [
            entry
            for entry in self.entries
            if entry.route == route or (route.endswith(".") and entry.route.startswith(route))
        ]

    def count(self, route: str) -> int:
        """How many requests a route has met."""
        return len(self.on(route))

    def __iter__(self) -> Iterator[LogEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
