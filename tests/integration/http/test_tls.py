"""Certificates against a real TLS server with a private CA."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from nedura.errors import ConfigError, UntrustedServer
from nedura.http import open_client, resolve_trust
from tests.integration.http.servers import Exchange, raw_server


async def hello(exchange: Exchange) -> None:
    await exchange.answer(200, b'{"hello": true}')


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


async def reach(tls: ssl.SSLContext, environ: Mapping[str, str], **given: object) -> bool:
    trust = resolve_trust(environ=environ, **given)  # type: ignore[arg-type]
    async with raw_server(hello, tls=tls) as server, open_client(trust, timeout=5, environ=environ) as client:
        return (await client.request("GET", server.url)).ok


@pytest.mark.parametrize("name", ["NEDURA_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_each_variable_is_believed(tls: ssl.SSLContext, bundle: Path, name: str) -> None:
    assert await reach(tls, {name: str(bundle)})


async def test_argument_and_stored_path_are_believed(tls: ssl.SSLContext, bundle: Path) -> None:
    assert await reach(tls, {}, ca_bundle=str(bundle))
    assert await reach(tls, {}, stored={"ca_bundle": str(bundle)})


async def test_insecure_connects(tls: ssl.SSLContext) -> None:
    assert await reach(tls, {}, insecure=True)


@pytest.mark.parametrize(
    "environ",
    [{}, {"PYTHONHTTPSVERIFY": "0"}, {"PIP_TRUSTED_HOST": "localhost"}, {"SSL_CERT_FILE": "/gone.pem"},
     {"REQUESTS_CA_BUNDLE": ""}, {"NEDURA_INSECURE": "1"}],
    ids=lambda value: next(iter(value), "nothing"),
)  # fmt: skip
async def test_an_unknown_certificate_fails_fast_and_names_the_setting(
    tls: ssl.SSLContext, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    start = time.monotonic()
    with pytest.raises(UntrustedServer) as caught:
        await reach(tls, environ)
    assert time.monotonic() - start < 3
    assert "NEDURA_CA_BUNDLE" in caught.value.advice


async def test_a_certificate_for_another_name_is_not_believed(ca: trustme.CA, bundle: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("elsewhere.example").configure_cert(context)
    with pytest.raises(UntrustedServer):
        await reach(context, {"NEDURA_CA_BUNDLE": str(bundle)})


async def test_the_key_log_variable_writes_nothing(
    tls: ssl.SSLContext, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap, ours = tmp_path / "trap.log", tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(trap))
    assert ssl.create_default_context().keylog_filename == str(trap)  # the trap works
    monkeypatch.setenv("SSLKEYLOGFILE", str(ours))
    assert await reach(tls, {"NEDURA_CA_BUNDLE": str(bundle), "SSLKEYLOGFILE": str(ours)})
    assert await reach(tls, {"SSLKEYLOGFILE": str(ours)}, insecure=True)
    assert not ours.exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_a_malformed_bundle_fails_before_the_wire(
    tmp_path: Path, content: bytes, tls: ssl.SSLContext
) -> None:
    path = tmp_path / "bad.pem"
    path.write_bytes(content)
    for given in ({"ca_bundle": str(path)}, {"stored": {"ca_bundle": str(path)}}):
        with pytest.raises(ConfigError) as caught:
            await reach(tls, {}, **given)
        assert "bad.pem" in caught.value.message


def test_the_system_store_survives_a_variable_that_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = len(resolve_trust(environ={}).context().get_ca_certs())
    monkeypatch.setenv("SSL_CERT_FILE", "/gone.pem")
    trust = resolve_trust()
    assert "SSL_CERT_FILE" in trust.warning
    assert len(trust.context().get_ca_certs()) == expected
