"""The development portal behaves as the facts say the real one does."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from nedura.testing.clock import FakeClock
from nedura.testing.http import PortalTransport
from nedura.testing.portal import Fault, Portal, PortalControl, PortalServer, portal_process, serve_portal

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
ALICE = "alice@example.test"


@pytest.fixture
async def server() -> AsyncIterator[PortalServer]:
    async with serve_portal(Portal()) as running:
        yield running


@pytest.fixture
async def web(server: PortalServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        yield client


async def _code(web: httpx.AsyncClient) -> dict[str, Any]:
    answer = await web.post(
        "/api/oauth/device/code", data={"client_id": "hermes-cli", "scope": "inference:invoke"}
    )
    found: dict[str, Any] = answer.json()
    return found


async def _poll(web: httpx.AsyncClient, device_code: str) -> httpx.Response:
    form = {"grant_type": DEVICE, "client_id": "hermes-cli", "device_code": device_code}
    return await web.post("/api/oauth/token", data=form)


async def _refresh(web: httpx.AsyncClient, token: str) -> httpx.Response:
    form = {"grant_type": "refresh_token", "client_id": "hermes-cli"}
    return await web.post("/api/oauth/token", data=form, headers={"x-nous-refresh-token": token})


async def test_a_person_approves_on_the_page(server: PortalServer, web: httpx.AsyncClient) -> None:
    code = await _code(web)
    assert {
        "device_code",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
        "expires_in",
        "interval",
    } == set(code)
    assert (await _poll(web, code["device_code"])).json()["error"] == "authorization_pending"
    page = await web.get(code["verification_uri_complete"])
    assert code["user_code"] in page.text
    picked = re.findall(r'name="account" value="([^"]+)"', page.text)
    assert ALICE in picked
    done = await web.post(
        "/device", data={"user_code": code["user_code"], "action": "approve", "account": ALICE}
    )
    assert done.status_code == 200
    answer = await _poll(web, code["device_code"])
    claims = server.portal.store.mint.claims(answer.json()["access_token"])
    assert claims is not None
    assert (claims["email"], claims["sub"]) == (ALICE, "nas_user:alice")
    assert (await _poll(web, code["device_code"])).json()["error"] == "invalid_grant"
    assert server.portal.log.count("token.device") == 3


async def test_a_person_declines_and_another_sites_form_is_refused(web: httpx.AsyncClient) -> None:
    code = await _code(web)
    form = {"user_code": code["user_code"].lower().replace("-", " "), "action": "decline"}
    assert (await web.post("/device", data=form, headers={"origin": "https://evil.test"})).status_code == 403
    assert (await web.post("/device", data=form)).status_code == 200
    assert (await _poll(web, code["device_code"])).json()["error"] == "access_denied"


async def test_a_code_expires_and_hasty_polls_are_slowed_down() -> None:
    portal = Portal(clock=(clock := FakeClock()))
    portal.knobs.change({"strict_gap": True, "interval": 5, "expires_in": 30})
    async with httpx.AsyncClient(base_url="http://portal", transport=PortalTransport(portal)) as web:
        code = await _code(web)
        seen = []
        for wait in (0.0, 1.0, 6.0, 15.0, 30.0):
            clock.advance(wait)
            seen.append((await _poll(web, code["device_code"])).json()["error"])
    # The 6 s gap is too short after one slow_down (5 + 5), the 15 s gap after two (5 + 5 + 5) is long enough.
    assert seen == [
        "authorization_pending",
        "slow_down",
        "slow_down",
        "authorization_pending",
        "expired_token",
    ]


async def test_a_refresh_token_is_single_use_and_reuse_ends_the_family(
    server: PortalServer, web: httpx.AsyncClient
) -> None:
    first = server.portal.login()
    old = first.current
    rotated = (await _refresh(web, old)).json()
    assert rotated["refresh_token"] not in ("", old)
    assert (
        await web.get("/api/oauth/account", headers={"authorization": f"Bearer {rotated['access_token']}"})
    ).json()["user"]["email"] == ALICE
    assert (await _refresh(web, old)).json()["error"] == "refresh_token_reused"
    assert (await _refresh(web, rotated["refresh_token"])).json()["error"] == "invalid_grant"
    assert server.portal.store.reuse == 1
    body_only = {
        "grant_type": "refresh_token",
        "client_id": "hermes-cli",
        "refresh_token": rotated["refresh_token"],
    }
    assert (await web.post("/api/oauth/token", data=body_only)).json()["error"] == "invalid_grant"


async def test_the_family_has_a_hard_end_that_rotation_does_not_move() -> None:
    portal = Portal(clock=(clock := FakeClock()))
    async with httpx.AsyncClient(base_url="http://portal", transport=PortalTransport(portal)) as web:
        token = portal.login().current
        clock.advance(29 * 86400)
        token = (await _refresh(web, token)).json()["refresh_token"]
        clock.advance(2 * 86400)
        assert (await _refresh(web, token)).json()["error"] == "invalid_grant"


async def test_a_claim_moves_apps_once(server: PortalServer, web: httpx.AsyncClient) -> None:
    store = server.portal.store
    guest = store.add_guest("gmail", "notion:reconnect")
    token = (await _refresh(web, server.portal.login().current)).json()["access_token"]
    bearer = {"authorization": f"Bearer {token}"}
    answer = await web.post("/api/anonymous/claim", json={"token": guest.token}, headers=bearer)
    assert answer.json()["connectors"] == [
        {"connector": "gmail", "outcome": "moved"},
        {"connector": "notion", "outcome": "reconnect"},
    ]
    again = await web.post("/api/anonymous/claim", json={"token": guest.token}, headers=bearer)
    spent = await web.post("/api/anonymous/token", json={"token": guest.token})
    assert (again.json()["error"], spent.json()["error"]) == ("unknown_token", "unknown_token")
    listed = (await web.get("/v1/connectors", headers=bearer)).json()["connectors"]
    assert [row["connector"] for row in listed] == ["gmail"]


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        (
            Fault(status=429, error="temporarily_unavailable", headers={"retry-after": "7"}),
            429,
            "temporarily_unavailable",
        ),
        (Fault(status=429, body="html"), 429, None),
        (Fault(status=503, body="empty"), 503, None),
        (Fault(status=403, body="html", headers={"x-vercel-mitigated": "deny"}), 403, None),
        (Fault(error="slow_down"), 400, "slow_down"),
        (Fault(status=307, body="empty", headers={"location": "http://127.0.0.1:1/"}), 307, None),
    ],
)
async def test_planted_faults_are_met_once(
    server: PortalServer, web: httpx.AsyncClient, fault: Fault, status: int, error: str | None
) -> None:
    code = await _code(web)
    server.portal.plant(fault)
    bad = await _poll(web, code["device_code"])
    assert bad.status_code == status
    assert error is None or bad.json()["error"] == error
    assert all(bad.headers[name] == value for name, value in fault.headers.items())
    assert (await _poll(web, code["device_code"])).json()["error"] == "authorization_pending"


async def test_an_answer_can_be_lost_after_the_state_changed(
    server: PortalServer, web: httpx.AsyncClient
) -> None:
    token = server.portal.login().current
    server.portal.plant(Fault(route="token.refresh", commit=True, drop=True))
    with pytest.raises(httpx.RemoteProtocolError):
        await _refresh(web, token)
    assert (await _refresh(web, token)).json()["error"] == "refresh_token_reused"
    assert [entry.status for entry in server.portal.log.on("token.refresh")] == [0, 400]


async def test_the_free_tier_gate_check_and_switches(server: PortalServer, web: httpx.AsyncClient) -> None:
    knobs = server.portal.knobs
    made = await web.post("/api/anonymous/create", json={})
    assert made.status_code == 201
    knobs.challenge = "required"
    held = await web.post("/api/anonymous/token", json={"token": made.json()["token"]})
    assert (held.status_code, held.json()["error"]) == (428, "challenge_required")
    apps = await web.post(
        "/api/anonymous/token", json={"token": made.json()["token"], "purpose": "connectors"}
    )
    assert apps.status_code == 200
    await web.post("/check", data={"user": made.json()["user_id"]})
    assert (
        await web.post("/api/anonymous/challenge/status", json={"token": made.json()["token"]})
    ).json() == {"status": "none"}
    assert (await web.post("/api/anonymous/token", json={"token": made.json()["token"]})).status_code == 200
    answers = []
    for gate in ("closed", "paused", "secret"):
        knobs.change({"anon_gate": gate})
        answers.append((await web.post("/api/anonymous/create", json={})).status_code)
    assert answers == [404, 503, 401]


async def test_the_log_holds_no_secret(tmp_path: Path) -> None:
    portal = Portal()
    portal.log_to(tmp_path / "log")
    async with serve_portal(portal) as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as web:
        code = await _code(web)
        portal.approve()
        tokens = (await _poll(web, code["device_code"])).json()
        await _refresh(web, tokens["refresh_token"])
        await web.get("/api/oauth/account", headers={"authorization": f"Bearer {tokens['access_token']}"})
    text = (tmp_path / "log").read_text()
    assert len(text.splitlines()) == 4
    assert json.loads(text.splitlines()[2])["carried"]["refresh"]
    assert len(portal.store.mint.issued) >= 5
    assert not [secret for secret in portal.store.mint.issued if secret in text]


async def test_it_serves_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with serve_portal(Portal(), certificate=tmp_path / "chain.pem", key=tmp_path / "key.pem") as server:
        context = httpx.create_ssl_context(verify=True)
        context.load_verify_locations(tmp_path / "ca.pem")
        async with httpx.AsyncClient(base_url=server.url, verify=context, trust_env=False) as web:
            assert (await _code(web))["verification_uri"].startswith("https://127.0.0.1:")


def test_another_process_drives_it(tmp_path: Path) -> None:
    with portal_process(tmp_path) as control:
        control.account("dave@example.test", tier="free")
        guest = control.guest("gmail")
        control.knobs(interval=1)
        control.plant(route="device_code", status=503, body="html")
        assert control.login("dave@example.test")["access_token"] in control.issued()
        assert guest["token"].startswith("anon_")
        with pytest.raises(Exception, match="503"):
            control.form("/api/oauth/device/code", client_id="hermes-cli")
        code = json.loads(control.form("/api/oauth/device/code", client_id="hermes-cli"))
        assert code["interval"] == 1
        assert control.wait_for_code() == code["user_code"]
        assert "Approved" in control.decide(code["user_code"], account="dave@example.test")
        assert [entry["status"] for entry in control.log("device_code")] == [503, 200]
        assert control.state()["grants"][0]["status"] == "approved"
    assert (tmp_path / "portal.log").stat().st_mode & 0o077 == 0
    assert isinstance(control, PortalControl)
