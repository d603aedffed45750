"""Where a token may travel: to the origin that issued it, whatever an override, a redirect or an answer says (threats.md 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from nedura.errors import ConfigError, NeduraError
from nedura.http import open_client
from nedura.product import NEDURA
from nedura.records import write_bytes
from nedura.signin import FreeTier, auth_status, import_shared, list_models, log_out, reconcile
from nedura.signin.portal import choose_inference, choose_portal
from nedura.testing.portal import Fault
from tests.integration.http.servers import Exchange, raw_server
from tests.integration.signin.world import URL, World
from tests.unit.signin.tokens import account

HOSTILE = [
    "https://portal@evil.example", "https://portal.nousresearch.com@evil.example", "https://portal.nousresearch.com.evil.example",
    "https://evil.example/portal.nousresearch.com", "https://portal.nousresearch.com\\@evil.example", "http://portal.nousresearch.com",
    "https://pоrtal.nousresearch.com", "https://portal.nousresearch.com.", "https://xn--portal", "https://10.0.0.1",
    "http://169.254.169.254/latest", "http://2130706433", "http://127.1", "http://0x7f.0.0.1", "http://0", "https://[fe80::1]",
    "https://user:pw@portal.nousresearch.com", "ftp://portal.nousresearch.com", "file:///etc/passwd", "//portal.nousresearch.com",
    "javascript:alert(1)", "https://portal.nousresearch.com:99999", "https://portal.nousresearch.com:0", "https:portal.nousresearch.com",
    "https://portal.nousresearch.com\n.evil.example", "https://portal.nousresearch.com%00.evil.example", " https://evil.example",
    "https://evil.example#portal.nousresearch.com", "https://evil.example?portal.nousresearch.com", "HTTPS://EVIL.EXAMPLE",
    "https://portal.nousresearch.com\u202e", "https://127.0.0.1.evil.example", "https://localhost.evil.example", "https://",
    "https://[::ffff:10.0.0.1]", "https://portal_nousresearch.com", "https://portal..nousresearch.com", "data:text/html,x",
    "https://inference-api.nousresearch.com.evil.example/v1", "http://inference-api.nousresearch.com/v1",
]  # fmt: skip


@pytest.mark.parametrize("url", HOSTILE)
def test_a_hostile_address_is_no_portal_and_no_model_host(url: str) -> None:
    """Four sources: store, portal answer, config of an account, environment."""
    assert choose_portal("", {"portal_base_url": url}, NEDURA, {})[0] == NEDURA.portal_url
    assert choose_inference(url, NEDURA.inference_url, NEDURA, {})[0] == NEDURA.inference_url
    for named, environ in ((url, {}), ("", {"NEDURA_PORTAL_BASE_URL": url})):
        try:
            chosen = choose_portal(named, None, NEDURA, environ)[0]
        except NeduraError:
            continue
        # an operator may name any plain https host; what is not plain falls through to the product's own
        assert chosen == NEDURA.portal_url or httpx.URL(chosen).host == httpx.URL(url.strip()).host


class Hosts(httpx.AsyncBaseTransport):
    """Notes every host that is asked, and answers nobody."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = (await request.aread()).decode()
        self.seen.append((request.url.host, body + str(request.headers)))
        raise httpx.ConnectError("nobody there", request=request)


async def test_a_stored_token_never_follows_an_override_to_another_origin(world: World) -> None:
    """A token of the usual portal, the override set to B: B sees no request that carries it (hermes#56864)."""
    entry = account("acct:1", at=world.clock.time() - 9000, refresh="rt-needle")
    world.store().save_account(entry, renewal=False, now=world.clock.time())
    world.environ["NEDURA_PORTAL_BASE_URL"] = "https://b.example"
    hosts = Hosts()

    def factory(trust: Any, **given: Any) -> Any:
        return open_client(trust, transport=hosts, **given)

    common: dict[str, Any] = {"environ": world.environ, "client_factory": factory}
    await auth_status(world.home, clock=world.clock, **common)
    with pytest.raises(NeduraError):
        await list_models(world.home, clock=world.clock, **common)
    await log_out(world.home, revoke=True, clock=world.clock, **common)
    assert hosts.seen
    assert not [text for host, text in hosts.seen if host == "b.example" and "rt-needle" in text]
    assert {host for host, text in hosts.seen if "rt-needle" in text} == {"portal.nousresearch.com"}


Act = Callable[[World, dict[str, Any]], Any]
ROUTES: dict[str, tuple[str, Act]] = {
    "device code": ("device_code", lambda world, common: world.last(client_factory=common["client_factory"])),
    "token poll": ("token.device", lambda world, common: world.last(client_factory=common["client_factory"])),
    "refresh": ("token.refresh", lambda world, common: auth_status(world.home, clock=world.clock, **common)),
    "revoke": ("revoke", lambda world, common: log_out(world.home, revoke=True, clock=world.clock, **common)),
    "create": (
        "anon.create",
        lambda world, common: FreeTier(home=world.home, clock=world.clock, memos={}, **common).provision(),
    ),
    "exchange": (
        "anon.exchange",
        lambda world, common: FreeTier(home=world.home, clock=world.clock, memos={}, **common).provision(),
    ),
    "import": ("token.refresh", lambda world, common: import_shared(world.home, clock=world.clock, **common)),
    "reconcile": ("anon.claim", lambda world, common: reconcile(world.home, clock=world.clock, **common)),
}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("name", ROUTES)
async def test_no_route_follows_a_redirect(world: World, name: str, status: int) -> None:
    """Host B sees nothing, and the redirect ends in a state or a named error."""
    route, act = ROUTES[name]
    world.environ["NEDURA_GUEST_ONBOARDING"] = "1"
    if name in ("refresh", "revoke"):
        await world.last()
        world.clock.advance(8000)
    elif name == "import":
        coder = world.home / "profiles" / "coder"
        coder.mkdir(parents=True, mode=0o700)
        await world.last(home=coder)
    elif name == "reconcile":
        await FreeTier(
            home=world.home, environ=world.environ, clock=world.clock, client_factory=world.client, memos={}
        ).provision()
        coder = world.home / "profiles" / "coder"
        coder.mkdir(parents=True, mode=0o700)
        write_bytes(coder / "config.yaml", b"{}\n")
        await world.last(home=coder)
        world.portal.log.entries.clear()

    async def seen(exchange: Exchange) -> None:
        await exchange.answer(200, b"{}")

    async with raw_server(seen) as other:
        world.portal.plant(
            Fault(route=route, status=status, times=-1, headers={"location": f"{other.url}/steal"})
        )
        await act(world, {"environ": world.environ, "client_factory": world.client})
        assert other.seen == []
    assert route in world.routes()
    assert {entry.host for entry in world.portal.log.entries} == {httpx.URL(URL).host}


@pytest.mark.parametrize(
    "tail", ["http://user:pw@127.0.0.1:1", "http://127.0.0.1:1?x=1", "http://127.0.0.1:1#f"]
)
def test_a_portal_that_cannot_be_used_is_told_a_reason_that_is_one(tail: str) -> None:
    """Each of them is http on this machine: to ask for https would send people the wrong way."""
    with pytest.raises(ConfigError) as refused:
        choose_portal("", None, NEDURA, {"NEDURA_PORTAL_BASE_URL": tail})
    assert "came from the environment" in refused.value.advice
    assert "without user name, query or fragment" in refused.value.advice
