"""The HTTP client against real sockets: limits, redirects, secrets, proxies."""

from __future__ import annotations

import asyncio
import gzip
import logging
import resource
import time

import pytest

from nedura.errors import ConfigError, PortalError, Unreachable
from nedura.http import Answer, open_client
from nedura.proxies import proxies_from
from nedura.retry import parse_retry_after
from nedura.text import Secret
from nedura.trust import Trust
from tests.integration.http.servers import Exchange, raw_server

NEEDLE = "needle-4f1d2c"


def ok(body: bytes, *headers: str, status: int = 200, kind: str = "application/json"):  # type: ignore[no-untyped-def]
    async def reply(exchange: Exchange) -> None:
        await exchange.answer(status, body, *headers, kind=kind)

    return reply


async def fetch(url: str, **given: object) -> Answer:
    async with open_client(Trust(), timeout=3) as client:
        return await client.request("POST", url, **given)  # type: ignore[arg-type]


async def test_form_json_and_bearer_arrive_as_they_must() -> None:
    async with raw_server(ok(b'{"a": 1}')) as server:
        answer = await fetch(
            server.url + "/x", form={"a": "1", "empty": "", "s": Secret("ü &")}, bearer=Secret("tok")
        )
        await fetch(server.url, json={"token": Secret("inner"), "list": [Secret("x")]})
    first, second = server.seen
    assert first.body == b"a=1&s=%C3%BC+%26"
    assert first.header("authorization") == "Bearer tok"
    assert first.header("content-type") == "application/x-www-form-urlencoded"
    assert first.header("accept") == "application/json"
    assert first.header("user-agent").startswith("nedura/")
    assert second.body == b'{"token": "inner", "list": ["x"]}'
    assert (answer.status, answer.body, answer.ok) == (200, {"a": 1}, True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_named_failure_and_the_other_host_sees_nothing(status: int) -> None:
    async with (
        raw_server(ok(b"{}")) as other,
        raw_server(ok(b"", f"Location: {other.url}/steal", status=status)) as server,
    ):
        with pytest.raises(PortalError) as caught:
            await fetch(
                server.url,
                form={"refresh": Secret(NEEDLE)},
                headers={"x-nous-refresh-token": Secret(NEEDLE)},
            )
    assert caught.value.error == "redirect"
    assert other.seen == []


@pytest.mark.parametrize(
    "url", ["http://portal.example/x", "https://a@b/", "file:///etc/passwd", "http://127.1/"]
)
async def test_an_address_that_may_not_be_used_is_refused_before_the_wire(url: str) -> None:
    with pytest.raises(ConfigError):
        await fetch(url)


async def test_a_body_over_the_limit_ends_the_request() -> None:
    async with raw_server(ok(b"x" * 3_000_000)) as server:
        with pytest.raises(PortalError) as caught:
            await fetch(server.url)
    assert caught.value.error == "too_large"


async def test_a_gzip_bomb_stays_small_in_memory() -> None:
    bomb = gzip.compress(b"\0" * 100_000_000, 9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with raw_server(ok(bomb, "Content-Encoding: gzip")) as server:
        with pytest.raises(PortalError):
            await fetch(server.url)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


async def test_a_packed_answer_that_was_not_asked_for_is_still_read() -> None:
    async with raw_server(ok(gzip.compress(b'{"a": 2}'), "Content-Encoding: gzip")) as server:
        assert (await fetch(server.url)).body == {"a": 2}


async def test_a_dripping_server_is_left_at_the_deadline() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
        for _ in range(5000):
            await exchange.send(b"x")
            await asyncio.sleep(0.05)

    async with raw_server(drip) as server:
        start = time.monotonic()
        with pytest.raises(Unreachable):
            await fetch(server.url, deadline_s=0.4)
        assert time.monotonic() - start < 1.5


async def test_dripping_headers_are_left_at_the_deadline_too() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\n")
        for number in range(5000):
            await exchange.send(b"X-%d: y\r\n" % number)
            await asyncio.sleep(0.05)

    async with raw_server(drip) as server:
        with pytest.raises(Unreachable):
            await fetch(server.url, deadline_s=0.4)


async def test_endless_headers_are_bounded() -> None:
    async def flood(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await exchange.send(b"X-Y: " + b"z" * 60_000 + b"\r\n")

    async with raw_server(flood) as server:
        with pytest.raises(Unreachable):
            await fetch(server.url)


@pytest.mark.parametrize(
    "body", [b"<html>no</html>", b"", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN', b"nul"], ids=range(6)
)
async def test_a_body_that_is_no_json_is_none(body: bytes) -> None:
    async with raw_server(ok(body, status=502, kind="text/html")) as server:
        answer = await fetch(server.url)
    assert answer.status == 502
    assert answer.body is None
    assert answer.fields == {}
    assert answer.error == ""


async def test_not_a_number_is_never_a_number() -> None:
    async with raw_server(ok(b'{"expires_in": NaN, "interval": Infinity}')) as server:
        assert (await fetch(server.url)).body == {"expires_in": None, "interval": None}


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with raw_server(ok(b"")) as server:
        url = server.url
    with pytest.raises(Unreachable) as caught:
        await fetch(url)
    assert "127.0.0.1" in caught.value.message


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def hold(exchange: Exchange) -> None:
        await asyncio.sleep(30)

    async with raw_server(hold) as server:
        task = asyncio.create_task(fetch(server.url))
        while not server.seen:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if server.open == 0:
                break
            await asyncio.sleep(0.01)
        assert server.open == 0


async def test_nothing_secret_reaches_the_log_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body = f'{{"access_token": "{NEEDLE}", "error": "bad token={NEEDLE}", "{NEEDLE[:5]}": 1}}'.encode()
    async with raw_server(ok(body, status=400)) as server:
        answer = await fetch(
            server.url + "/p?user_code=ABCD",
            form={"device_code": Secret(NEEDLE)},
            headers={"x-nous-refresh-token": Secret(NEEDLE)},
            bearer=Secret(NEEDLE),
        )
    assert NEEDLE not in caplog.text
    assert NEEDLE not in repr(answer)
    assert NEEDLE not in answer.text
    assert "fields=" in caplog.text


async def test_a_header_value_with_a_line_end_is_refused() -> None:
    async with raw_server(ok(b"{}")) as server:
        with pytest.raises((ConfigError, Unreachable)):
            await fetch(server.url, bearer=Secret("a\r\nx-evil: 1"))
    assert all("x-evil" not in exchange.head for exchange in server.seen)


async def test_a_proxy_of_the_environment_is_used_and_loopback_never_goes_through_it() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(403, b"")

    async with raw_server(refuse) as proxy, raw_server(ok(b"{}")) as server:
        environ = {"HTTPS_PROXY": proxy.url, "http_proxy": proxy.url, "NO_PROXY": "direct.invalid"}
        async with open_client(Trust(), timeout=3, environ=environ) as client:
            with pytest.raises(Unreachable):
                await client.request("GET", "https://portal.invalid/x")
            with pytest.raises(Unreachable):
                await client.request("GET", "https://direct.invalid/x", deadline_s=1)
            assert (await client.request("GET", server.url)).ok
    assert [exchange.head.split("\r\n")[0] for exchange in proxy.seen] == [
        "CONNECT portal.invalid:443 HTTP/1.1"
    ]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "ftp://127.0.0.1:1", "http://[", "nonsense://"])
async def test_a_proxy_that_cannot_be_used_is_a_clear_failure(proxy: str) -> None:
    async with open_client(Trust(), timeout=2, environ={"all_proxy": proxy}) as client:
        with pytest.raises(Unreachable):
            await client.request("GET", "https://portal.invalid/x")


def test_proxy_variables() -> None:
    assert proxies_from({"https_proxy": "a:1", "HTTPS_PROXY": "b:2"})[0] == {"https": "http://a:1"}
    assert proxies_from({"HTTP_PROXY": "a:1", "REQUEST_METHOD": "GET"})[0] == {}
    assert proxies_from({"NO_PROXY": "A.b, ,c"})[1] == ("a.b", "c")


async def test_lines_stream_as_they_come() -> None:
    async def stream(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for part in (b"data: on", b"e\r\n\r\ndata: two\n", b"tail"):
            await exchange.send(b"%x\r\n%s\r\n" % (len(part), part))
            await asyncio.sleep(0.01)
        await exchange.send(b"0\r\n\r\n")

    async with (
        raw_server(stream) as server,
        open_client(Trust(), timeout=3) as client,
        client.lines("POST", server.url, json={}) as lines,
    ):
        assert not isinstance(lines, Answer)
        assert [line async for line in lines] == ["data: one", "", "data: two", "tail"]


async def test_a_refused_stream_is_an_answer() -> None:
    async with (
        raw_server(ok(b'{"error": "no"}', status=429)) as server,
        open_client(Trust(), timeout=3) as client,
        client.lines("POST", server.url, json={}) as refused,
    ):
        assert isinstance(refused, Answer)
        assert (refused.status, refused.error) == (429, "no")


NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0), (" 5 ", 5.0), ("Fri, 15 Jan 2027 08:01:00 GMT", 60.0), ("1000000000", 1e9),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-1", None), ("120junk", None), ("0", None), ("1e9", None),
        ("٣", None), ("", None), ("5, 10", None), ("NaN", None), ("inf", None), ("9" * 400, None), ("1.5", None),
        ("Fri, 99 Jan 99999 08:01:00 GMT", None), ("²", None),
    ],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
