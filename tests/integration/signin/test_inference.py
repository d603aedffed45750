"""The model route over real HTTP: a turn streams, a token that ran out is renewed, a host that lies or stalls ends in an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import ConfigError, NeduraError, PortalError, RefusedError, Unreachable
from nedura.inference import delta_of, resolve_route, stream_reply
from nedura.signin.accounts import AccountStore
from nedura.signin.identity import account_entry
from nedura.testing.portal import Fault, Portal, serve_portal
from nedura.testing.portal.routes_oauth import token_set
from tests.integration.http.servers import Exchange, RawServer, raw_server

HELLO = [{"role": "user", "content": "hello"}]
Reply = Callable[[Exchange], Awaitable[None]]


def piece(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


async def stream_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")


async def talk(exchange: Exchange) -> None:
    await stream_head(exchange)
    await exchange.send(b": ping\n\n" + piece("Hel") + b"event: x\n" + piece("") + piece("lo"))
    await exchange.send(b"data: [DONE]\n\ndata: after the end\n\n")
    exchange.writer.close()


async def break_off(exchange: Exchange) -> None:
    await stream_head(exchange)
    await exchange.send(piece("half an ans"))
    exchange.writer.close()


async def fail_midway(exchange: Exchange) -> None:
    await stream_head(exchange)
    await exchange.send(
        piece("half") + b'data: {"error": {"message": "too \\u001b[31mbusy, key api_key=abcdefgh"}}\n\n'
    )
    await exchange.send(b"data: [DONE]\n\n")
    exchange.writer.close()


async def end_without_mark(exchange: Exchange) -> None:
    await stream_head(exchange)
    await exchange.send(piece("whole") + b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n')
    exchange.writer.close()


@attrs.define
class Site:
    """A home, its portal and the host of its model."""

    home: Path
    portal: Portal
    url: str
    model: RawServer

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home.parent),
            "NEDURA_PORTAL_BASE_URL": self.url,
            "NOUS_INFERENCE_BASE_URL": self.model.url,
            "NEDURA_GUEST_ONBOARDING": "1",
        }

    @property
    def store(self) -> AccountStore:
        return AccountStore(self.home, environ=self.environ)

    def sign_in(self) -> dict[str, Any]:
        answer = token_set(self.portal, self.portal.login(), self.url)
        entry = account_entry(
            answer,
            portal_url=self.url,
            inference_url=f"{self.model.url}/v1",
            client_id="hermes-cli",
            scope="inference:invoke",
            tls={},
            now=self.portal.now(),
        )
        self.store.save_account(entry, renewal=False, now=self.portal.now())
        return entry

    def free_tier(self, token: str = "") -> str:
        guest = self.portal.store.add_guest()
        entry = {
            "auth_method": "anonymous", "account_tier": "anonymous", "anon_token": guest.token, "client_id": "nas-anonymous",
            "portal_base_url": self.url, "user_id": guest.user_id, "org_id": guest.org_id,
            "inference_base_url": f"{self.model.url}/v1", "access_token": token,
        }  # fmt: skip
        self.store.save_guest(entry, renewal=False, now=self.portal.now())
        return guest.token

    async def ask(self, **options: Any) -> list[str]:
        options = {"model": "nous/x", "environ": self.environ} | options
        async with aclosing(stream_reply(self.home, HELLO, **options)) as pieces:
            return [text async for text in pieces]

    def bearers(self) -> list[str]:
        return [one.header("authorization").removeprefix("Bearer ") for one in self.model.seen]


@asynccontextmanager
async def site(tmp_path: Path, reply: Reply = talk) -> AsyncIterator[Site]:
    home = tmp_path / ".nedura"
    home.mkdir(mode=0o700)
    portal = Portal()
    async with raw_server(reply) as model, serve_portal(portal) as server:
        portal.knobs.welcome_url = portal.knobs.inference_url = f"{model.url}/v1"
        yield Site(home, portal, server.url, model)


async def test_a_turn_streams_with_the_accounts_token(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        entry = here.sign_in()
        assert await here.ask(reasoning="high") == ["Hel", "lo"]
        (asked,) = here.model.seen
        assert asked.path == "/v1/chat/completions"
        assert asked.header("accept") == "text/event-stream"
        assert json.loads(asked.body) == {
            "model": "nous/x", "messages": HELLO, "stream": True, "reasoning_effort": "high",
        }  # fmt: skip
        assert here.bearers() == [entry["access_token"]]


async def test_an_account_whose_token_ran_out_is_renewed_before_the_turn(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.portal.knobs.access_ttl = 1
        old = here.sign_in()["access_token"]
        here.portal.knobs.access_ttl = 900
        await asyncio.sleep(1.1)
        assert await here.ask() == ["Hel", "lo"]
        assert here.portal.log.count("token.refresh") == 1
        assert here.bearers() != [old]


async def test_a_free_tier_without_a_token_exchanges_its_credential_first(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.free_tier()
        assert await here.ask() == ["Hel", "lo"]
        assert here.portal.log.count("anon.exchange") == 1
        assert here.bearers() == [(here.store.read().entry or {})["access_token"]]
        assert await here.ask() == ["Hel", "lo"]
        assert here.portal.log.count("anon.exchange") == 1  # the token that is kept is good


@pytest.mark.parametrize("kind", ["account", "free tier"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_is_renewed_once_and_the_turn_goes_on(
    tmp_path: Path, kind: str, status: int
) -> None:
    async def refuse_first(exchange: Exchange) -> None:
        if len(here.model.seen) == 1:
            await exchange.answer(status, b'{"error": "invalid_token"}')
        else:
            await talk(exchange)

    async with site(tmp_path, lambda exchange: refuse_first(exchange)) as here:
        if kind == "account":
            here.sign_in()
        else:
            here.free_tier()
        assert await here.ask() == ["Hel", "lo"]
        first, second = here.bearers()
        assert first != second


async def test_a_host_that_always_refuses_is_asked_twice_and_no_token_is_told(tmp_path: Path) -> None:
    async def refuse(exchange: Exchange) -> None:
        token = exchange.header("authorization").removeprefix("Bearer ")
        await exchange.answer(401, json.dumps({"error": token, "message": token}).encode())

    async with site(tmp_path, refuse) as here:
        here.sign_in()
        with pytest.raises(PortalError) as caught:
            await here.ask()
        assert len(here.model.seen) == 2
        assert not any(token in str(caught.value) + caught.value.diagnostics() for token in here.bearers())


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "busy"),
        (400, "refused the message (400)"),
        (500, "refused the message (500)"),
        (302, "refused the message (302)"),
    ],
)
async def test_other_refusals_have_their_own_words(tmp_path: Path, status: int, words: str) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(status, b'{"error": "at_capacity"}', "Location: http://127.0.0.1:1/")

    async with site(tmp_path, refuse) as here:
        here.sign_in()
        with pytest.raises(NeduraError) as caught:
            await here.ask()
        assert words in f"{caught.value} {getattr(caught.value, 'error', '')}"
        assert len(here.model.seen) == 1


async def garbage(exchange: Exchange) -> None:
    await stream_head(exchange)
    for line in (b"data: {", b"data: []", b"data: 5", b'data: {"choices": [7]}', b"data: " + b"[" * 5000):
        await exchange.send(line + b"\n\n")
    await exchange.send(piece("ok") + b'data: {"choices": [{"delta": {"content": 5}}]}\n\ndata: [DONE]\n\n')
    exchange.writer.close()


async def cut(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")
    exchange.writer.close()


async def endless_line(exchange: Exchange) -> None:
    await stream_head(exchange)
    for _ in range(40):
        await exchange.send(b"data: " + b"x" * 65536)


async def hang_up(exchange: Exchange) -> None:
    exchange.writer.close()


async def test_lines_that_make_no_sense_add_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, garbage) as here:
        here.sign_in()
        assert await here.ask() == ["ok"]


@pytest.mark.parametrize(
    ("reply", "error"), [(cut, Unreachable), (endless_line, PortalError), (hang_up, Unreachable)]
)
async def test_a_hostile_host_ends_in_an_error(
    tmp_path: Path, reply: Reply, error: type[NeduraError]
) -> None:
    async with site(tmp_path, reply) as here:
        here.sign_in()
        with pytest.raises(error):
            await here.ask()


async def test_closing_the_generator_closes_the_request(tmp_path: Path) -> None:
    async def slow(exchange: Exchange) -> None:
        await stream_head(exchange)
        await exchange.send(piece("one"))
        await asyncio.sleep(60)

    async with site(tmp_path, slow) as here:
        here.sign_in()
        pieces = stream_reply(here.home, HELLO, model="nous/x", environ=here.environ)
        assert await anext(pieces) == "one"
        assert here.model.open == 1
        await pieces.aclose()
        for _ in range(100):
            if not here.model.open:
                break
            await asyncio.sleep(0.01)
        assert here.model.open == 0


async def test_a_portal_that_is_away_leaves_a_free_tier_without_a_turn(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.free_tier()
        here.portal.plant(Fault(route="anon.exchange", times=-1, status=503, body="html"))
        with pytest.raises(RefusedError):
            await here.ask()
        assert here.model.seen == []


async def test_a_token_goes_to_no_host_but_its_own(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        with pytest.raises(RefusedError, match="Nobody"):
            await here.ask()
        here.sign_in()
        with pytest.raises(RefusedError, match="No model"):
            await here.ask(model=None)
        (here.home / "config.yaml").write_text("model:\n  default: m\n  base_url: https://evil.example/v1\n")
        with pytest.raises(ConfigError):
            await here.ask(model=None)
        assert here.model.seen == []
        (here.home / "config.yaml").write_text(f"model:\n  default: m\n  base_url: {here.model.url}/v2/\n")
        route = resolve_route(here.home)
        assert (route.url, route.model) == (f"{here.model.url}/v2/chat/completions", "m")
        assert "eyJ" not in repr(route)


@pytest.mark.parametrize(
    ("line", "text"),
    [("", ""), (": ping", ""), ("data: [DONE]", None), ("data:[DONE]", None), ('data: {"choices":[]}', "")],
)
def test_one_line_of_a_stream(line: str, text: str | None) -> None:
    assert delta_of(line) == text


@pytest.mark.parametrize(("reply", "said"), [(break_off, "broke off"), (fail_midway, "too busy, key")])
async def test_half_an_answer_never_passes_for_a_whole_one(tmp_path: Path, reply: Reply, said: str) -> None:
    got: list[str] = []
    async with site(tmp_path, reply) as here:
        here.sign_in()
        with pytest.raises(PortalError, match=said) as caught:
            async with aclosing(
                stream_reply(here.home, HELLO, model="nous/x", environ=here.environ)
            ) as pieces:
                async for text in pieces:
                    got += [text]
    assert "".join(got).startswith("half")
    assert "abcdefgh" not in str(caught.value)
    assert str(caught.value).isprintable()


async def test_a_finish_reason_ends_an_answer_too(tmp_path: Path) -> None:
    async with site(tmp_path, end_without_mark) as here:
        here.sign_in()
        assert await here.ask() == ["whole"]
