"""Field reports on sign-in, each by its id (shared/cases)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trustme

from nedura.errors import RecordUnreadable, StoreError
from nedura.http import open_client
from nedura.retry import parse_retry_after
from nedura.signin import (
    AccountStore,
    Cancelled,
    Code,
    Completed,
    Desk,
    Failed,
    LoginOptions,
    Parts,
    TimedOut,
    Waiting,
    auth_status,
    log_out,
    run_sign_in,
)
from nedura.testing.clock import FakeClock
from nedura.testing.http import Scripted, ScriptedTransport, reply
from nedura.testing.portal import Fault, Knobs, Portal, serve_portal
from tests.integration.signin.world import URL, World
from tests.unit.signin.tokens import NOW, account, jwt

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


def _blocked(home: Path, **given: Any) -> AccountStore:
    class Blocked(AccountStore):
        def transaction(self, timeout: float | None = None) -> Any:
            threading.Event().wait(3)
            raise StoreError("the key store does not answer")

    return Blocked(home, **given)


async def test_c132_a_store_that_hangs_or_fails_is_failed_in_bounded_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    state = await world.last(parts=Parts(store=_blocked, save_seconds=0.4))
    assert isinstance(state, Failed)
    assert loop.time() - start < 2
    assert "could not be saved" in caplog.text
    assert "disk" not in state.copy
    assert world.files() == {}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0 for a tiny file system")
@pytest.mark.parametrize("trouble", ["full", "read_only"])
async def test_c132_a_full_or_read_only_disk_is_failed_and_nothing_is_half_saved(
    tmp_path: Path, trouble: str
) -> None:
    home = tmp_path / "tiny"
    home.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mount is not allowed here")
    try:
        world = World(home=home)
        await world.last()
        before = world.files()
        if trouble == "full":
            handle = os.open(home / "ballast", os.O_WRONLY | os.O_CREAT)
            with pytest.raises(OSError, match="No space"):
                while True:
                    os.write(handle, b"x" * 4096)
            os.close(handle)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        state = await world.last(options=LoginOptions(replace=True))
        assert isinstance(state, Failed)
        assert not state.saved
        assert {name: data for name, data in world.files().items() if name != "ballast"} == before
        assert all(family.revoked for family in world.portal.store.families[1:])  # given back
    finally:
        subprocess.run(["umount", "-l", str(home)], check=False)


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


def test_c138_a_store_that_cannot_be_read_is_never_taken_for_empty(tmp_path: Path) -> None:
    import resource

    store = AccountStore(tmp_path, environ={})
    store.save_account(account("a"), renewal=False, now=NOW)
    before = store.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(RecordUnreadable):
            store.read()
        with pytest.raises(StoreError):
            store.save_account(account("b"), renewal=False, now=NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store.path.read_bytes() == before


def _unreadable(home: str) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    store = AccountStore(Path(home), environ={})
    for attempt in (store.read, lambda: store.save_account(account("b"), renewal=False, now=NOW)):
        try:
            attempt()
        except StoreError:
            continue
        os._exit(3)
    os._exit(0)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0 for a second user")
@pytest.mark.parametrize("owner", ["nobody_mode_000", "root"])
def test_c138_mode_000_or_an_owner_root_changes_nothing(tmp_path: Path, owner: str) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    AccountStore(home, environ={}).save_account(account("a"), renewal=False, now=NOW)
    path = home / "auth.json"
    before = path.read_bytes()
    os.chown(home, 65534, 65534)
    for child in home.rglob("*"):
        os.chown(child, 65534, 65534)
    if owner == "root":
        os.chown(path, 0, 0)
    else:
        path.chmod(0)
    process = multiprocessing.get_context("spawn").Process(target=_unreadable, args=(str(home),))
    process.start()
    process.join(40)
    assert process.exitcode == 0
    assert path.read_bytes() == before


def _add(home: str, name: str, count: int) -> None:
    store = AccountStore(Path(home), environ={})
    for number in range(count):
        with store.transaction() as transaction:
            transaction.edit(lambda doc, n=number: doc["providers"].update({f"{name}{n}": {"n": n}}), NOW)  # type: ignore[misc]


def test_c139_two_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(str(tmp_path), name, 100)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(55)
    assert len(AccountStore(tmp_path, environ={}).read().document["providers"]) == 200


async def test_c139_corrupt_copies_are_numbered_and_private_and_sign_out_works_on_them(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    for number in range(3):
        damaged = b'{"providers": {"nous": {"access_token": "x%d' % number
        (tmp_path / "auth.json").write_bytes(damaged[:40] + b"%d" % number)
        out = await log_out(tmp_path, environ={})
        assert out.changed
    copies = sorted(tmp_path.glob("auth.json.corrupt*"))
    assert [path.name for path in copies] == [
        "auth.json.corrupt",
        "auth.json.corrupt.1",
        "auth.json.corrupt.2",
    ]
    assert len({path.read_bytes() for path in copies}) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in copies)


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


def test_c185_every_copy_of_a_store_is_private_from_its_first_byte(tmp_path: Path) -> None:
    """A watcher looks at every file of the home while stores are written and put aside under umask 0."""
    tmp_path.chmod(0o700)
    seen: set[tuple[str, int]] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for entry in os.scandir(tmp_path):
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(info.st_mode):
                    seen.add((entry.name.split(".tmp")[0], stat.S_IMODE(info.st_mode) & 0o077))

    before = os.umask(0)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        store = AccountStore(tmp_path, environ={})
        for number in range(60):
            store.save_account(
                account("a", refresh=f"r{number}", at=NOW + number), renewal=False, now=NOW + number
            )
        descriptor = os.open(store.path, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, b"{")
        os.close(descriptor)
        store.save_account(account("b"), renewal=False, now=NOW + 99)
    finally:
        os.umask(before)
        done.set()
        watcher.join()
    assert {mode for _, mode in seen} == {0}
    assert any(name.startswith("auth.json.corrupt") for name in os.listdir(tmp_path))


def test_c185_the_trap_of_the_watcher_works(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "open").write_text(json.dumps({}))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) & 0o077
