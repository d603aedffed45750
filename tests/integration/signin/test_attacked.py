"""What an attacker, a kill or a clumsy caller once got out of the sign-in."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nedura.config import read_config
from nedura.errors import ConfigError, RecordCorrupt, RefusedError, Unreachable
from nedura.http import open_client
from nedura.records import write_bytes
from nedura.signin import (
    AccountStore,
    AlreadySignedIn,
    Cancelled,
    Completed,
    Failed,
    LoginOptions,
    Parts,
    auth_status,
    has_scope,
    import_shared,
    list_logins,
    log_out,
    recommended_nous_default_model,
    step_up_options,
)
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.models import Caches
from nedura.signin.portal import PortalClient
from nedura.testing.http import ScriptedTransport, reply
from nedura.testing.portal import Fault
from nedura.text import Secret
from nedura.trust import resolve_trust
from tests.integration.signin.world import URL, World, read
from tests.unit.signin.tokens import account

WELCOME = b"model:\n  default: nous/welcome\n  base_url: https://welcome-api.nousresearch.com/v1\n"


class _Body(httpx.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self.data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.data


class _Answers(httpx.AsyncBaseTransport):
    """A server as one function."""

    def __init__(self, answer: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> None:
        self.answer = answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        made = await self.answer(request)
        headers = [
            (n, v) for n, v in made.headers.items() if n not in ("content-length", "transfer-encoding")
        ]
        body = made.stream if isinstance(made.stream, _Body) else _Body(made.content)
        return httpx.Response(made.status_code, headers=headers, stream=body)


@contextmanager
def _bad_guard() -> Iterator[bool]:
    yield True
    raise RuntimeError("guard exit")


@asynccontextmanager
async def _bad_async_guard() -> AsyncIterator[bool]:
    yield True
    raise RuntimeError("guard exit")


def _bad_scope() -> Callable[[], Any]:
    count = 0

    @contextmanager
    def scope() -> Iterator[None]:
        nonlocal count
        count += 1
        number = count
        yield
        if number == 2:
            raise RuntimeError("scope exit")

    return scope


@pytest.mark.parametrize(
    "given", [{"persist_guard": _bad_guard}, {"persist_guard": _bad_async_guard}, {"scope": None}]
)
async def test_an_exit_that_raises_after_the_save_takes_nothing_back(
    world: World, given: dict[str, Any]
) -> None:
    given = {"scope": _bad_scope()} if "scope" in given else given
    failed = await world.last(**given)
    assert isinstance(failed, Failed)
    assert failed.saved
    assert (world.home / "auth.json").exists()
    assert not world.portal.store.families[0].revoked


async def test_a_save_slower_than_its_time_is_waited_for_once_it_has_begun(world: World) -> None:
    class Slow(AccountStore):
        @contextmanager
        def transaction(self, timeout: float | None = None) -> Iterator[Any]:
            with super().transaction(timeout) as inner:
                whole = inner.save_account

                class Slowly:
                    state = inner.state

                    def save_account(self, *args: Any, **more: Any) -> Any:
                        time.sleep(0.6)
                        return whole(*args, **more)

                yield Slowly()

    done = await world.last(parts=Parts(store=lambda *a, **k: Slow(*a, **k), save_seconds=0.2))
    assert isinstance(done, Completed)
    assert not world.portal.store.families[0].revoked


async def test_a_cancel_while_an_async_guard_opens_is_obeyed_at_once(world: World) -> None:
    opening = False

    @asynccontextmanager
    async def guard() -> AsyncIterator[bool]:
        nonlocal opening
        opening = True
        await asyncio.sleep(30)
        yield True

    start = time.monotonic()
    state = await world.last(persist_guard=guard, cancelled=lambda: opening)
    assert isinstance(state, Cancelled)
    assert time.monotonic() - start < 5
    assert world.files() == {}


@pytest.mark.parametrize("form", ["{0}", "x {0}", "{0} {0}", "A{0}", "{1}"])
async def test_a_server_that_echoes_what_it_was_sent_is_not_quoted(
    world: World, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    """The device code in `error`, also one that looks like a code, or a piece of it."""
    caplog.set_level(logging.DEBUG)
    needle = "needle_device_code_" + "0" * 20

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/device/code"):
            code = {"device_code": needle, "user_code": "ABCD-EFGH", "verification_uri": f"{URL}/device"}
            return httpx.Response(200, json=code)
        return httpx.Response(400, json={"error": form.format(needle, needle[:30])})

    factory = _factory(_Answers(answer))
    failed = await world.last(client_factory=factory)
    assert isinstance(failed, Failed)
    shown = f"{failed!r} {failed.copy} {failed.copy_terminal} {caplog.text}"
    assert needle[:20] not in shown
    assert "other" in failed.detail


def _factory(transport: httpx.AsyncBaseTransport) -> Callable[..., Any]:
    return lambda trust=None, **given: open_client(trust, transport=transport, **given)


async def test_an_echoed_refresh_token_is_in_no_answer() -> None:
    token = "rt_secret_needle_0123456789"
    transport = ScriptedTransport([reply({"error": token}, 503), reply({"error": token[:20]}, 400)])
    async with open_client(transport=transport, environ={}) as client:
        portal = PortalClient(client=client, base=URL)
        for _ in range(2):
            answer = await portal.refresh(Secret(token))
            assert (answer.error, answer.fields["error"], answer.text) == ("other", "other", "")


async def test_a_bearer_goes_to_no_origin_that_did_not_issue_it(world: World) -> None:
    seen: list[tuple[str, str]] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("authorization", "")))
        return httpx.Response(200, json={"paidRecommendedModels": [{"modelName": "p/1"}]})

    found = await recommended_nous_default_model(
        world.home,
        account(portal_base_url="https://evil.example"),
        environ={},
        clock=world.clock,
        caches=Caches(),
        client_factory=_factory(_Answers(answer)),
    )
    assert seen == [("portal.nousresearch.com", "")]
    assert found.model == "p/1"


async def test_trust_choices_stay_with_their_portal(world: World) -> None:
    tls = {"insecure": True, "ca_bundle": None}
    now = time.time()
    entry = account(at=now, tls=tls)
    world.store().save_account(entry, renewal=False, now=now)
    assert step_up_options(world.home, "billing:manage", environ=world.environ).insecure is None
    assert step_up_options(world.home, "billing:manage", environ={}).insecure is True


def test_a_relative_bundle_is_remembered_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert resolve_trust(ca_bundle="ca.pem", environ={}).remember["ca_bundle"] == str(tmp_path / "ca.pem")


def test_a_relative_shared_folder_is_the_same_from_everywhere(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = AccountStore(world.home, environ={"NEDURA_SHARED_AUTH_DIR": "s", "HOME": "/x"})
    assert store.shared_folder == tmp_path / "s"


async def _shared_account(world: World) -> World:
    """A second profile of a root whose shared store holds an account; returns that profile's world."""
    await world.last()
    child = World(home=world.home / "profiles" / "work", portal=world.portal, clock=world.clock)
    child.home.mkdir(parents=True, mode=0o700)
    (world.home / "auth.json").unlink()
    return child


async def test_an_import_that_fails_leaves_everything_as_it_was(world: World) -> None:
    child = await _shared_account(world)
    row = {"source": "manual", "access_token": "mine"}
    guest = {"auth_method": "anonymous", "anon_token": "anon_" + "m" * 24, "portal_base_url": URL}
    document = {
        "version": 1, "providers": {"nous": guest, "openai": {}}, "active_provider": "openai",
        "credential_pool": {"nous": [row]}, "suppressed_sources": {},
    }  # fmt: skip
    write_bytes(child.home / "auth.json", json.dumps(document).encode())
    world.portal.faults.plant(Fault(route="*", times=-1, status=500, error="server_error"))
    failed = await import_shared(
        child.home, environ=child.environ, clock=child.clock, client_factory=child.client
    )
    assert isinstance(failed, Failed)
    after = read(child.home / "auth.json")
    names = ("providers", "active_provider", "credential_pool")
    assert {name: after[name] for name in names} == {name: document[name] for name in names}
    assert HandoffStore(child.home).read() == ()


async def test_a_sign_in_during_a_failing_import_stands(world: World) -> None:
    child = await _shared_account(world)
    other = account("acct:other", at=world.clock.time(), refresh="rt-other")

    async def answer(request: httpx.Request) -> httpx.Response:
        path = child.home / "auth.json"
        document = read(path)
        document["providers"]["nous"] = other
        write_bytes(path, json.dumps(document).encode())
        return httpx.Response(500, json={})

    await import_shared(
        child.home,
        environ=child.environ,
        clock=child.clock,
        client_factory=_factory(_Answers(answer)),
    )
    assert read(child.home / "auth.json")["providers"]["nous"]["refresh_token"] == "rt-other"


@pytest.mark.parametrize("bad", [{"access_token": "a\udc80b"}, {"refresh_token": "r\u00e9"}])
async def test_a_token_that_cannot_be_sent_is_refused_and_nothing_follows_the_end(
    world: World, bad: dict[str, str]
) -> None:
    token = json.dumps({**account(at=world.clock.time()), **bad}).encode()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/device/code"):
            code = {"device_code": "dev", "user_code": "ABCD-EFGH", "verification_uri": f"{URL}/device"}
            return httpx.Response(200, json=code)
        return httpx.Response(200, content=token)

    failed = await world.last(client_factory=_factory(_Answers(answer)))
    assert isinstance(failed, Failed)
    assert failed.reason == "malformed"
    assert world.files() == {}


async def test_a_form_that_cannot_be_encoded_is_a_config_error() -> None:
    async with open_client(transport=ScriptedTransport([]), environ={}) as client:
        with pytest.raises(ConfigError):
            await client.request("POST", URL, form={"token": Secret("\udc80")})


@pytest.mark.parametrize(
    ("status", "headers"),
    [(408, {}), (425, {}), (429, {}), (500, {}), (503, {}), (403, {"x-vercel-mitigated": "challenge"})],
)
@pytest.mark.parametrize(
    ("body", "packed"),
    [(b"x" * 2_000_000, ""), (b"no gzip", "gzip"), (b"x", "br")],
    ids=["large", "torn", "br"],
)
async def test_no_blip_ends_a_login_whatever_its_body(
    world: World, status: int, headers: dict[str, str], body: bytes, packed: str
) -> None:
    polls = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal polls
        if request.url.path.endswith("/device/code"):
            code = {"device_code": "dev", "user_code": "ABCD-EFGH", "verification_uri": f"{URL}/device"}
            return httpx.Response(200, json=code)
        polls += 1
        if polls > 1:
            return httpx.Response(400, json={"error": "access_denied"})
        more = {**headers, "retry-after": "77"} | ({"content-encoding": packed} if packed else {})
        return httpx.Response(status, headers=more, stream=_Body(body))

    start = world.clock.monotonic()
    failed = await world.last(client_factory=_factory(_Answers(answer)))
    assert isinstance(failed, Failed)
    assert failed.reason == "access_denied"
    assert polls == 2
    assert world.clock.monotonic() - start >= 77


async def test_a_sign_in_that_was_killed_before_its_settle_is_finished_by_the_next(world: World) -> None:
    await world.last()
    write_bytes(world.home / "config.yaml", WELCOME)
    assert isinstance(await world.last(), AlreadySignedIn)
    assert "welcome" not in (world.home / "config.yaml").read_text()


async def test_a_status_finishes_it_too(world: World) -> None:
    await world.last()
    write_bytes(world.home / "config.yaml", WELCOME)
    await auth_status(world.home, environ=world.environ, clock=world.clock, client_factory=world.client)
    assert "welcome" not in (world.home / "config.yaml").read_text()


async def test_places_that_share_the_model_section_by_an_anchor_stay(world: World) -> None:
    shared = b"fallback: &m\n  default: nous/welcome\n  base_url: https://welcome-api.nousresearch.com/v1\nmodel: *m\n"
    write_bytes(world.home / "config.yaml", shared)
    assert isinstance(await world.last(), Completed)
    config = read_config(world.home)
    assert config.get("fallback.default") == "nous/welcome"
    assert config.get("model.base_url") == "https://inference-api.nousresearch.com/v1"


async def test_no_poll_waits_much_longer_than_its_code_lives(world: World) -> None:
    deadlines: list[float] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/device/code"):
            code = {"device_code": "dev", "user_code": "ABCD-EFGH", "verification_uri": f"{URL}/device"}
            return httpx.Response(200, json=code | {"expires_in": 1, "interval": 1})
        start = time.monotonic()
        try:
            await asyncio.sleep(30)
        finally:
            deadlines.append(time.monotonic() - start)
        return httpx.Response(500)

    await world.last(client_factory=_factory(_Answers(answer)), timeout=25.0)
    assert deadlines
    assert max(deadlines) < 5


def _unusable_shared(world: World) -> None:
    (world.home / "blocked").write_bytes(b"a file")
    world.environ["NEDURA_SHARED_AUTH_DIR"] = str(world.home / "blocked" / "shared")


async def test_an_unusable_shared_folder_stops_no_sign_in_and_no_logout(world: World) -> None:
    _unusable_shared(world)
    done = await world.last()
    assert isinstance(done, Completed)
    assert not done.shared
    assert (world.home / "auth.json").exists()
    out = await log_out(world.home, environ=world.environ, clock=world.clock, client_factory=world.client)
    assert out.changed


async def test_a_revocation_that_the_portal_refuses_is_not_told_as_done(world: World) -> None:
    await world.last()
    world.portal.faults.plant(Fault(route="*", times=-1, status=500))
    out = await log_out(
        world.home, revoke=True, environ=world.environ, clock=world.clock, client_factory=world.client
    )
    assert out.revoked is False


async def test_a_revocation_names_the_client_that_the_login_was_made_with(world: World) -> None:
    world.store().save_account(
        account(at=world.clock.time(), client_id="other-client", portal_base_url=URL),
        renewal=False,
        now=world.clock.time(),
    )
    bodies: list[bytes] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200, json={})

    out = await log_out(
        world.home,
        revoke=True,
        environ=world.environ,
        clock=world.clock,
        client_factory=_factory(_Answers(answer)),
    )
    assert out.revoked
    assert b"client_id=other-client" in bodies[0]


async def test_no_scope_is_no_right(world: World) -> None:
    await world.last()
    assert not has_scope(world.home, "", environ=world.environ)
    with pytest.raises(RefusedError):
        step_up_options(world.home, " ", environ=world.environ)


async def test_a_model_address_that_may_not_be_used_is_refused_before_anything(world: World) -> None:
    failed = await world.last(options=LoginOptions(inference_url="https://evil.example/v1"))
    assert isinstance(failed, Failed)
    assert "evil.example" in failed.detail
    assert world.routes() == []


def test_a_torn_store_is_not_listed_as_empty(world: World) -> None:
    write_bytes(world.home / "auth.json", b'{"providers": {"no')
    with pytest.raises(RecordCorrupt):
        list_logins(world.home, environ=world.environ, now=0)


async def test_a_proxy_that_cannot_be_is_a_plain_error() -> None:
    environ = {"https_proxy": "http://proxy.example:99999"}
    async with open_client(environ=environ) as client:
        with pytest.raises(Unreachable):
            await client.request("GET", "https://portal.example/x", deadline_s=2)


@pytest.mark.parametrize("guest", [False, True])
async def test_a_sign_out_of_nobody_blames_no_service(world: World, guest: bool) -> None:
    """There is no session to end: nothing is asked, and nothing is said to have failed."""
    if guest:
        world.guest()
    out = await log_out(
        world.home, revoke=True, environ=world.environ, clock=world.clock, client_factory=world.client
    )
    assert (out.revoked, "service" in out.copy, world.routes()) == (None, False, [])


@pytest.mark.parametrize("content", [b"x", b"[]", b""], ids=["torn", "odd", "empty"])
async def test_a_status_says_that_the_record_of_connected_apps_cannot_be_read(
    world: World, content: bytes
) -> None:
    """Silence would be "nothing is waiting", and nobody would ever look."""
    assert (await world.last()).ok
    common: Any = {"environ": world.environ, "clock": world.clock, "client_factory": world.client}
    assert (await auth_status(world.home, **common)).notes == ()
    (world.home / "guest_handoff.json").write_bytes(content)
    found = await auth_status(world.home, **common)
    assert (found.state, found.handoff_status) == ("signed_in", None)
    assert [note.split(":")[0] for note in found.notes] == ["Connected apps"]
    assert found.notes[0] in found.copy_terminal
    assert "Connected apps" not in found.copy
