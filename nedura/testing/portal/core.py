"""The portal itself: one request in, one answer out, with planted faults and the log in between."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nedura.clock import Clock, SystemClock
from nedura.records import open_ours
from nedura.testing.portal import admin, routes
from nedura.testing.portal.exchange import Answer, failure, html, json_answer
from nedura.testing.portal.knobs import Fault, FaultQueue, Knobs
from nedura.testing.portal.log import RequestLog, fingerprint
from nedura.testing.portal.state import Account, DeviceGrant, Family, Store

if TYPE_CHECKING:
    from nedura.testing.portal.exchange import Ask

__all__ = ["Portal"]

_SECOND_CREDENTIALS = (("refresh", "x-nous-refresh-token"), ("anon_secret", "x-anonymous-api-secret"))


@attrs.define(kw_only=True)
class Portal:
    """State, knobs, faults and log of one development portal.

    Attributes:
        knobs: how it behaves.
        faults: what goes wrong next.
        store: accounts, grants, families, identities.
        log: every request.
        clock: its time; a fake one makes fifteen-minute codes expire at once.
    """

    knobs: Knobs = attrs.field(factory=Knobs)
    faults: FaultQueue = attrs.field(factory=FaultQueue)
    store: Store = attrs.field(factory=Store)
    log: RequestLog = attrs.field(factory=RequestLog)
    clock: Clock = attrs.field(factory=SystemClock)

    def __attrs_post_init__(self) -> None:
        for email, tier in (
            ("alice@example.test", "paid"),
            ("bob@example.test", "paid"),
            ("carol@example.test", "free"),
        ):
            self.store.account(email, tier="free" if tier == "free" else "paid")

    def now(self) -> float:
        """The portal's time in unix seconds."""
        return self.clock.time()

    def log_to(self, path: Path) -> None:
        """Also write the log to a file, as JSON lines.

        Raises:
            StoreError: it cannot be written: said now, not by a failure of every request.
        """
        os.close(open_ours(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        self.log.file = path

    def plant(self, *faults: Fault) -> None:
        """Let something go wrong."""
        self.faults.plant(*faults)

    def approve(self, user_code: str = "latest", email: str = "alice@example.test") -> DeviceGrant:
        """Do what a person does on the page: approve a code as an account.

        Raises:
            LookupError: there is no such code waiting.
        """
        return self._decide(user_code, self.store.account(email))

    def decline(self, user_code: str = "latest") -> DeviceGrant:
        """Decline a code as a person does on the page.

        Raises:
            LookupError: there is no such code waiting.
        """
        return self._decide(user_code, None)

    def _decide(self, user_code: str, account: Account | None) -> DeviceGrant:
        grant = self.store.grant_for(user_code)
        if grant is None or grant.status != "pending" or self.now() >= grant.expires:
            raise LookupError(f"no code {user_code} is waiting")
        grant.account, grant.status = account, "approved" if account else "declined"
        return grant

    def login(
        self,
        email: str = "alice@example.test",
        client_id: str = "hermes-cli",
        scope: str = "inference:invoke",
    ) -> Family:
        """A login without the device flow: a fresh family for an account."""
        return self.store.add_family(
            self.store.account(email),
            client_id=client_id,
            scope=scope,
            now=self.now(),
            life=self.knobs.family_ttl,
        )

    async def handle(self, ask: Ask) -> Answer:
        """Answer one request."""
        if ask.path.startswith("/_dev/"):
            return admin.answer(self, ask)
        route, handler = routes.find(ask)
        started, open_now = self.now(), self.log.begin(route)
        fault = self.faults.take(route)
        answer = Answer(drop=True)
        try:
            if fault is None:
                answer = handler(self, ask)
            else:
                answer = await self._spoil(fault, ask, handler)
        finally:
            self.log.end(
                route,
                started=started,
                ended=self.now(),
                method=ask.method,
                path=ask.path,
                status=0 if answer.drop else answer.status,
                error=answer.error,
                fault=fault.label if fault else "",
                agent=ask.headers.get("user-agent", ""),
                host=ask.headers.get("host", ""),
                in_flight=open_now,
                carried=_carried(ask),
            )
        return answer

    async def _spoil(self, fault: Fault, ask: Ask, handler: routes.Handler) -> Answer:
        real = handler(self, ask) if fault.commit else None
        if fault.delay:
            await self.clock.sleep(fault.delay)
        if fault.drop:
            return Answer(drop=True)
        plain = not fault.status and not fault.error and fault.body == "json"
        answer = (real or handler(self, ask)) if plain else _false_answer(fault)
        answer = attrs.evolve(answer, headers={**answer.headers, **fault.headers})
        if fault.drip:
            answer = attrs.evolve(answer, pieces=tuple(bytes([b]) for b in answer.body), pause=fault.drip)
        return answer


def _carried(ask: Ask) -> dict[str, str]:
    """Which credentials a request held, as fingerprints."""
    body = ask.json if "json" in ask.headers.get("content-type", "") else ask.form
    found = {"bearer": ask.bearer, "device": body.get("device_code"), "token": body.get("token")}
    found |= {kind: ask.headers.get(name, "") for kind, name in _SECOND_CREDENTIALS}
    found["refresh_in_body"] = body.get("refresh_token")
    return {kind: fingerprint(value) for kind, value in found.items() if isinstance(value, str) and value}


def _false_answer(fault: Fault) -> Answer:
    status = fault.status or (400 if fault.error else 200)
    if fault.body == "json":
        return failure(status, fault.error, fault.text) if fault.error else json_answer({}, status)
    if fault.body == "html":
        return html(fault.text or "<html><body><h1>Something went wrong</h1></body></html>", status)
    if fault.body == "gzip_bomb":
        bomb = gzip.compress(b" " * (64 << 20))
        return Answer(
            status=status,
            headers={"content-type": "application/json", "content-encoding": "gzip"},
            pieces=(bomb,),
        )
    bodies = {
        "empty": b"",
        "text": fault.text.encode(),
        "array": json.dumps([fault.error, 1, None]).encode(),
        "deep": b"[" * 100_000,
        "huge": b'{"error": "' + b"x" * (8 << 20) + b'"}',
    }
    return Answer(status=status, headers={"content-type": "application/json"}, pieces=(bodies[fault.body],))
