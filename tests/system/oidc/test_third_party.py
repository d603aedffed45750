"""The device login against servers that are not ours: panva oidc-provider (HTTP, HTTPS) and Authlib."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
import trustme

from nedura.signin import Code, Completed, Failed, Kind, SignInState, TimedOut, Waiting, run_sign_in
from nedura.signin.accounts import AccountStore
from tests.system.oidc.human import decide

HERE = Path(__file__).parent

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    ready = found and (HERE / "node_modules" / "oidc-provider").is_dir()
    if not ready:
        reason = "node with oidc-provider is missing: npm ci --ignore-scripts --prefix tests/system/oidc"
        pytest.skip(reason)
    return str(found)


@contextmanager
def served(command: list[str], **settings: str) -> Iterator[str]:
    """A server in its own process; the value is its address."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **settings}
    process = subprocess.Popen(
        command, cwd=HERE, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"{command} did not start"
        yield str(json.loads(line)["issuer"])
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


async def login(home: Path, url: str, person: Callable[[Code], object], **environ: str) -> list[SignInState]:
    """Sign in; the person acts in a thread as soon as the code is shown."""
    import asyncio

    states: list[SignInState] = []
    acting: asyncio.Future[object] | None = None
    flow = run_sign_in(
        home=home, environ={"NEDURA_PORTAL_BASE_URL": url, "HOME": str(home), **environ}, timeout=10
    )
    async with aclosing(flow) as seen:
        async for state in seen:
            states.append(state)
            if isinstance(state, Code):
                acting = asyncio.ensure_future(asyncio.to_thread(person, state))
    if acting is not None:
        await acting
    return states


def subject(home: Path) -> tuple[str, str, Kind]:
    state = AccountStore(home, environ={}).read()
    return state.subject, state.email, state.kind(0)


async def test_oidc_provider_over_http_approved_on_its_own_pages(node: str, tmp_path: Path) -> None:
    """No `interval` in the answer: the default of 5 s counts."""
    with served([node, "portal.mjs"]) as url:
        states = await login(tmp_path, url, lambda code: decide(code.link))
    assert [type(state) for state in states] == [Code, Waiting, Completed]
    assert isinstance(states[0], Code)
    assert states[0].interval == 5
    assert subject(tmp_path) == ("alice", "alice@example.test", Kind.ACCOUNT)


async def test_oidc_provider_aborted_on_its_own_pages(node: str, tmp_path: Path) -> None:
    with served([node, "portal.mjs"], INTERVAL="1") as url:
        states = await login(tmp_path, url, lambda code: decide(code.link, abort=True))
    assert isinstance(states[-1], Failed)
    assert states[-1].reason == "access_denied"


async def test_oidc_provider_over_https_with_a_private_ca(node: str, tmp_path: Path) -> None:
    ca = trustme.CA()
    certificate = ca.issue_cert("localhost", "127.0.0.1")
    bundle, key, chain = tmp_path / "ca.pem", tmp_path / "key.pem", tmp_path / "chain.pem"
    ca.cert_pem.write_to_path(str(bundle))
    certificate.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    with served([node, "portal.mjs"], INTERVAL="1", TLS_KEY=str(key), TLS_CERT=str(chain)) as url:
        refused = await login(tmp_path / "without", url, lambda code: None)
        states = await login(
            tmp_path / "with", url, lambda code: decide(code.link, ca=bundle), NEDURA_CA_BUNDLE=str(bundle)
        )
    assert isinstance(refused[-1], Failed)
    assert refused[-1].reason == "untrusted_server"
    assert isinstance(states[-1], Completed)
    assert subject(tmp_path / "with")[1] == "alice@example.test"


async def test_oidc_provider_with_a_strict_gap_never_has_to_say_slow_down_twice(
    node: str, tmp_path: Path
) -> None:
    with served([node, "portal.mjs"], INTERVAL="1", MIN_GAP="3") as url:
        import time

        def late(code: Code) -> None:
            time.sleep(3)
            decide(code.link)

        states = await login(tmp_path, url, late)
    assert isinstance(states[-1], Completed)


async def test_oidc_provider_code_that_expires(node: str, tmp_path: Path) -> None:
    with served([node, "portal.mjs"], INTERVAL="1", DEVICE_TTL="3") as url:
        states = await login(tmp_path, url, lambda code: None)
    assert isinstance(states[-1], TimedOut)


@pytest.fixture(scope="module")
def authlib() -> Iterator[str]:
    with served([sys.executable, "-W", "ignore", str(HERE / "authlib_server.py")]) as url:
        yield url


def post(url: str, **fields: str) -> None:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        url, urllib.parse.urlencode(fields).encode(), timeout=10
    ) as answer:
        answer.read()


async def test_authlib_approved(authlib: str, tmp_path: Path) -> None:
    states = await login(
        tmp_path,
        authlib,
        lambda code: post(f"{authlib}/device", user_code=code.code, do="approve", login="bob"),
    )
    assert [type(state) for state in states] == [Code, Waiting, Completed]
    assert subject(tmp_path) == ("bob", "bob@example.test", Kind.ACCOUNT)


async def test_authlib_denied(authlib: str, tmp_path: Path) -> None:
    states = await login(
        tmp_path, authlib, lambda code: post(f"{authlib}/device", user_code=code.code, do="deny")
    )
    assert isinstance(states[-1], Failed)
    assert states[-1].reason == "access_denied"
