"""Field reports on sign-in, each by its id (shared/cases)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trustme

from nedura.http import open_client
from nedura.retry import parse_retry_after
from nedura.signin import (
    AccountStore,
    Cancelled,
    Code,
    Completed,
    Desk,
    Failed,
    TimedOut,
    Waiting,
    auth_status,
    run_sign_in,
)
from nedura.testing.clock import FakeClock
from nedura.testing.http import Scripted, ScriptedTransport, reply
from nedura.testing.portal import Fault, Knobs, Portal, serve_portal
from tests.integration.signin.world import URL, World
from tests.unit.signin.tokens import jwt

DEVICE = {
    "device_code": "dc", "user_code": "ABCD-EFGH", "verification_uri": f"{URL}/device",
    "verification_uri_complete": f"{URL}/device?user_code=ABCD-EFGH", "expires_in": 900, "interval": 5,
}  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return World(home=home)


class Issuer(ScriptedTransport):
    """A scripted issuer that notes when each poll came."""

    def __init__(
        self,
        clock: FakeClock,
        device: Any,
        tokens: list[Scripted],
        latency: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__({"/api/oauth/device/code": [device], "/api/oauth/token": tokens, "": [reply({})]})
        self.clock, self.polls, self.latency = clock, list[float](), latency

    async def handle_async_request(self, request: Any) -> Any:
        if request.url.path == "/api/oauth/token":
            if self.latency is not None:
                await self.clock.sleep(self.latency(len(self.polls)))
            self.polls.append(self.clock.monotonic() - 1000)
        return await super().handle_async_request(request)


def error(code: str, status: int = 400, **headers: str) -> Scripted:
    return reply({"error": code}, status, **headers)


def token(now: float = 1_800_000_000.0) -> Scripted:
    return reply(
        {"access_token": jwt("acct:1", now=now, life=7200), "refresh_token": "rt", "expires_in": 7200}
    )


async def login(
    world: World, tokens: list[Scripted], device: dict[str, Any] | None = None, **more: Any
) -> tuple[Any, Issuer]:
    issuer = Issuer(world.clock, reply(DEVICE | (device or {})), tokens, more.pop("latency", None))
    state = await world.last(
        client_factory=lambda trust, **given: open_client(trust, transport=issuer, **given), **more
    )
    return state, issuer


async def test_c117_slow_down_is_not_an_error_and_lasts(world: World) -> None:
    pending = error("authorization_pending")
    state, issuer = await login(world, [pending, error("slow_down"), pending, token()])
    assert isinstance(state, Completed)
    gaps = [b - a for a, b in zip(issuer.polls, issuer.polls[1:], strict=False)]
    assert all(gap >= 10 for gap in gaps[1:])


async def test_c119_a_strict_server_never_finds_a_poll_early(world: World) -> None:
    """The gap is counted from arrival to arrival at the server, with a latency that varies."""
    latencies = [0.3, 0.05, 0.28, 0.01, 0.3]
    state, issuer = await login(
        world,
        [error("authorization_pending")] * 4 + [token()],
        latency=lambda n: latencies[n % len(latencies)],
    )
    assert isinstance(state, Completed)
    assert all(b - a >= 5 for a, b in zip(issuer.polls, issuer.polls[1:], strict=False))
    assert len(issuer.polls) == 5


async def test_c124_a_rate_limit_without_words_goes_on(world: World) -> None:
    state, issuer = await login(world, [reply(b"", 429), reply(b"", 429), token()])
    assert isinstance(state, Completed)
    assert issuer.polls[1] - issuer.polls[0] >= 10


async def test_c124_a_link_with_terminal_bytes_is_never_shown(world: World) -> None:
    link = "https://portal.example/\x1b]8;;http://evil\x07"
    for field in ("verification_uri", "verification_uri_complete"):
        states = []
        issuer = Issuer(world.clock, reply(DEVICE | {field: link}), [token()])
        async with aclosing(
            world.flow(
                client_factory=lambda trust, issuer=issuer, **g: open_client(trust, transport=issuer, **g)
            )
        ) as seen:
            states = [state async for state in seen]
        assert len(states) == 1
        assert isinstance(states[0], Failed)
        assert "\x1b" not in states[0].copy + states[0].copy_terminal
        assert "evil" not in states[0].copy + states[0].copy_terminal


async def test_c126_a_forgotten_sign_in_holds_no_lock(world: World) -> None:
    world.portal.knobs.auto_approve = ""
    async with aclosing(world.flow()) as states:
        await anext(states)
        await anext(states)

        def others() -> None:
            with AccountStore(world.home, environ=world.environ, lock_timeout=0.2).transaction():
                pass

        await asyncio.to_thread(others)
        status = await auth_status(
            world.home, environ=world.environ, clock=world.clock, client_factory=world.client
        )
        assert status.state == "signed_out"


@pytest.mark.parametrize(("approved", "completes"), [(27.0, True), (29.0, False)])
async def test_c127_one_last_poll_at_the_deadline(world: World, approved: float, completes: bool) -> None:
    """Two slow_downs make the gap jump past the end; the last poll is sent at the deadline itself."""

    class Late(Issuer):
        async def handle_async_request(self, request: Any) -> Any:
            if request.url.path == "/api/oauth/token":
                at = self.clock.monotonic() - 1000
                number = len(self.polls)
                answer = (
                    error("slow_down")
                    if number < 2
                    else token()
                    if completes and at >= approved
                    else error("expired_token")
                )
                self._scripts["/api/oauth/token"] = [answer]
            return await super().handle_async_request(request)

    issuer = Late(world.clock, reply(DEVICE | {"expires_in": 30}), [])
    state = await world.last(
        client_factory=lambda trust, **given: open_client(trust, transport=issuer, **given)
    )
    assert issuer.polls[-1] == pytest.approx(30)
    assert isinstance(state, Completed if completes else TimedOut)


@pytest.mark.parametrize("code", ["code_expired", "expired_token", "EXPIRED_TOKEN", "device_code_expired"])
async def test_c129_expiry_by_any_name_is_a_timeout(world: World, code: str) -> None:
    state, _ = await login(world, [error("authorization_pending"), error(code)])
    assert isinstance(state, TimedOut)


async def test_c129_an_unknown_code_is_failed_without_its_text(world: World) -> None:
    strange = reply(
        {"error": "unknown_thing", "error_description": "at https://x.example Traceback line 3 nedura auth"},
        400,
    )
    state, _ = await login(world, [strange])
    assert isinstance(state, Failed)
    for word in ("unknown_thing", "https://", "Traceback", "nedura"):
        assert word not in state.copy


@pytest.mark.parametrize("moment", ["before", "sleep", "request", "before_save"])
async def test_c130_a_cancel_is_cancelled_at_every_moment(tmp_path: Path, moment: str) -> None:
    """Real time, real sockets: the state comes within a second and the held request is closed."""
    portal = Portal(knobs=Knobs(interval=1, auto_approve="" if moment == "sleep" else "alice@example.test"))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    since = loop.time()

    def set_stop() -> None:
        nonlocal since
        since = loop.time()
        stop.set()

    if moment == "before":
        set_stop()
    elif moment == "request":
        portal.plant(Fault(route="token.device", delay=30))
    elif moment == "before_save":
        portal.log.listener = lambda entry: set_stop() if entry.route == "token.device" else None
    async with serve_portal(portal) as server:
        environ = {"NEDURA_PORTAL_BASE_URL": server.url, "HOME": str(tmp_path)}
        async with aclosing(run_sign_in(home=tmp_path, environ=environ, cancelled=stop.is_set)) as states:
            async for state in states:
                if isinstance(state, Waiting) and moment in ("sleep", "request"):
                    loop.call_later(0.3 if moment == "sleep" else 1.5, set_stop)
        assert isinstance(state, Cancelled)
        assert loop.time() - since < 1
        assert not (tmp_path / "auth.json").exists()


async def test_c131_a_late_cancel_ends_only_its_own_attempt(world: World) -> None:
    world.portal.knobs.auto_approve = ""
    desk = Desk()
    ends: dict[str, Any] = {}
    shown: list[str] = []

    async def attempt(name: str) -> None:
        ticket = desk.begin("user")
        assert ticket is not None
        tickets[name] = ticket
        async with aclosing(world.flow(cancelled=ticket)) as states:
            async for state in states:
                if isinstance(state, Code) and not ticket():
                    shown.append(state.code)
                ends[name] = state
        desk.end(ticket)

    tickets: dict[str, Any] = {}
    first = asyncio.create_task(attempt("a"))
    await asyncio.sleep(0)
    second = asyncio.create_task(attempt("b"))
    await asyncio.sleep(0.01)
    tickets["a"].cancel()
    await first
    world.portal.approve()
    await second
    assert ends["a"] == Cancelled(replaced=True)
    assert "replaced by a newer" in ends["a"].copy
    assert isinstance(ends["b"], Completed)


async def test_c134_a_missing_path_is_named_and_a_bad_certificate_is_final_in_seconds(tmp_path: Path) -> None:
    ca = trustme.CA()
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    key, chain, bundle = tmp_path / "key.pem", tmp_path / "chain.pem", tmp_path / "ca.pem"
    certificate.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    ca.cert_pem.write_to_path(str(bundle))
    portal = Portal(knobs=Knobs(interval=1, auto_approve="alice@example.test"))
    loop = asyncio.get_running_loop()
    async with serve_portal(portal, certificate=chain, key=key) as server:

        async def end(home: str, **environ: str) -> Any:
            given = {"NEDURA_PORTAL_BASE_URL": server.url, "HOME": str(tmp_path), **environ}
            async with aclosing(run_sign_in(home=tmp_path / home, environ=given)) as states:
                return [state async for state in states][-1]

        missing = await end("a", NEDURA_CA_BUNDLE="/missing.pem")
        assert isinstance(missing, Failed)
        assert "/missing.pem" in missing.copy_terminal
        start = loop.time()
        refused = await end("b")
        assert isinstance(refused, Failed)
        assert refused.reason == "untrusted_server"
        assert "NEDURA_CA_BUNDLE" in refused.copy_terminal
        assert loop.time() - start < 5
        assert [entry.route for entry in portal.log.entries] == []
        for number, name in enumerate(("NEDURA_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")):
            assert isinstance(await end(f"c{number}", **{name: str(bundle)}), Completed)
        environ = {"NEDURA_CA_BUNDLE": str(bundle), "HOME": str(tmp_path)}
        status = await auth_status(tmp_path / "c0", environ=environ)
        assert status.checked


@pytest.mark.parametrize(
    "value",
    ["Wed, 21 Oct 2015 07:28:00 GMT", "-1", "120junk", "0", "1e9", "٣", "", "5, 7", "NaN", "999999999", "30"],
)
async def test_c142_any_retry_after_makes_a_sane_wait(world: World, value: str) -> None:
    headers = {"retry_after": value} if value.isascii() else {}
    state, issuer = await login(world, [reply(b"", 429, **headers), token()], {"expires_in": 120})
    assert isinstance(state, Completed)
    assert all(slept >= 0 for slept in world.clock.slept)
    gap = issuer.polls[1] - issuer.polls[0]
    assert 6 <= gap <= 120
    if value == "30":
        assert gap == pytest.approx(30)
    assert parse_retry_after(value, 1_800_000_000.0) in (None, 30.0, 999999999.0)


async def test_c143_no_variable_outranks_the_stored_sign_in(world: World) -> None:
    """Nothing reads a credential from the environment, so nothing can hide the account that was just signed in."""
    world.environ |= {"NEDURA_TOKEN": jwt("other"), "NOUS_API_KEY": "old", "NEDURA_ACCESS_TOKEN": "old"}
    await world.last()
    status = await auth_status(
        world.home, environ=world.environ, clock=world.clock, client_factory=world.client
    )
    assert (status.state, status.email) == ("signed_in", "alice@example.test")
