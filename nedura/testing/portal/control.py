"""Driving a portal that runs in another process, with the standard library only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nedura.errors import Unreachable, UsageError
from nedura.records import read_json

__all__ = ["PortalControl", "portal_process"]


class PortalControl:
    """Client of the portal's `/_dev/` surface and a stand-in person for its `/device` page.

    Args:
        url: the portal's address.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def account(self, email: str, **fields: Any) -> dict[str, Any]:
        """Make or change an account: `tier`, `sub`, `locked`, `plan`."""
        return self._record("POST", "account", {"email": email, **fields})

    def guest(self, *connectors: str) -> dict[str, Any]:
        """A free-tier identity with connected apps (`gmail`, or `notion:reconnect` for one that does not move)."""
        return self._record("POST", "guest", {"connectors": connectors})

    def login(self, email: str = "alice@example.test", **fields: str) -> dict[str, Any]:
        """A token answer without the device flow."""
        return self._record("POST", "login", {"email": email, **fields})

    def knobs(self, **values: Any) -> dict[str, Any]:
        """Set knobs; returns all of them."""
        return self._record("POST", "knobs", values)

    def plant(self, **fault: Any) -> None:
        """Plant one fault, fields as `Fault`."""
        self._json("POST", "faults", {"faults": [fault]})

    def clear_faults(self) -> None:
        """Forget planted faults."""
        self._json("DELETE", "faults")

    def revoke_families(self, email: str, reason: str = "revoked") -> None:
        """End every login of an account."""
        self._json("POST", "revoke-families", {"email": email, "reason": reason})

    def log(self, route: str = "") -> list[dict[str, Any]]:
        """The request log, of one route or whole."""
        found: list[dict[str, Any]] = self._json("GET", f"log?route={urllib.parse.quote(route)}")
        return found

    def state(self) -> dict[str, Any]:
        """Accounts, grants, families, identities, connections; no secrets."""
        return self._record("GET", "state")

    def issued(self) -> list[str]:
        """Every secret the portal ever handed out, for needle tests."""
        found: list[str] = self._json("GET", "issued")
        return found

    def decide(self, user_code: str, action: str = "approve", account: str = "alice@example.test") -> str:
        """Do what a person does on the page; returns the page that answered.

        Raises:
            UsageError: the page refused.
        """
        return self.form("/device", user_code=user_code, action=action, account=account).decode()

    def form(self, path: str, **fields: str) -> bytes:
        """Send a form as a browser does; returns the body.

        Raises:
            UsageError: the answer was no success.
        """
        form = urllib.parse.urlencode(fields).encode()
        return self._send(urllib.request.Request(f"{self.url}{path}", form, method="POST"))

    def wait_for_code(self, timeout: float = 10.0) -> str:
        """The user code of the first waiting login.

        Raises:
            UsageError: none came in time.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            waiting = [grant for grant in self.state()["grants"] if grant["status"] == "pending"]
            if waiting:
                return str(waiting[0]["user_code"])
            time.sleep(0.02)
        raise UsageError("No device code was asked for in time.")

    def _record(self, method: str, path: str, value: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = self._json(method, path, value)
        return found

    def _json(self, method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        headers = {"content-type": "application/json"} if body is not None else {}
        return json.loads(
            self._send(urllib.request.Request(f"{self.url}/_dev/{path}", body, headers, method=method))
        )

    def _send(self, request: urllib.request.Request) -> bytes:
        try:
            with self._opener.open(request, timeout=10) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise UsageError(f"The portal answered {error.code}: {error.read()[:300]!r}") from error
        except urllib.error.URLError as error:
            raise Unreachable(f"The portal does not answer: {error.reason}.") from error


@contextmanager
def portal_process(folder: Path, *arguments: str, timeout: float = 20.0) -> Iterator[PortalControl]:
    """A portal in its own process for a block.

    Args:
        folder: where its ready file and its request log `portal.log` go.
        *arguments: further arguments of `python -m nedura.testing.portal`.
        timeout: seconds it may take to answer.

    Raises:
        Unreachable: it did not start.
    """
    ready, log = folder / "portal.ready", folder / "portal.log"
    command = [
        sys.executable,
        "-m",
        "nedura.testing.portal",
        "--ready-file",
        str(ready),
        "--log-file",
        str(log),
    ]
    process = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + timeout
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Unreachable("The development portal did not start.")
            time.sleep(0.02)
        yield PortalControl(read_json(ready)["url"])
    finally:
        process.terminate()
        process.wait(10)
