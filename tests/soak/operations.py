"""What one process of the soak does: the library's own calls on a real home, over a real connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs

from nedura.errors import NeduraError, UsageError
from nedura.signin import LoginOptions, import_shared, log_out, offer_shared, run_sign_in
from nedura.signin.accounts import AccountStore
from nedura.signin.adoption import reconcile
from nedura.signin.handoff import drain
from nedura.signin.identity import Kind, account_entry
from nedura.signin.refresh import Outcome, refresh_account
from tests.soak.bugs import records_of, spent_of


class ShiftedClock:
    """The machine's clock as the soak sets it."""

    def __init__(self, now: float) -> None:
        self._offset = now - time.time()

    def time(self) -> float:
        return time.time() + self._offset

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.frozen(kw_only=True)
class Request:
    """What a process is asked to do.

    Attributes:
        name, force, device: as `plan.Op`.
        home: the profile's home.
        environ: its environment.
        now: its wall clock.
        answer: the portal's token answer for a sign-in, or the identity for a mint.
        bug: a planted bug, empty for none.
    """

    name: str
    home: Path
    environ: dict[str, str]
    now: float
    answer: dict[str, Any]
    force: bool = False
    device: bool = False
    bug: str = ""


def child(connection: Connection, request: Request) -> None:
    """Entry of a process: waits for its start, works, reports."""
    connection.recv()
    connection.send(perform(request))


def perform(request: Request) -> dict[str, str]:
    """Do one thing and say how it ended."""
    try:
        return {"done": _TABLE[request.name](request)}
    except NeduraError as error:
        return {"error": f"{type(error).__name__}: {error.message}"}
    except Exception as error:  # the border: an unexpected error is a violation, not the end of the soak
        return {"crash": f"{type(error).__name__}: {error}"}


def _store(request: Request) -> AccountStore:
    return AccountStore(request.home, environ=request.environ)


def _portal(request: Request) -> str:
    return request.environ["NEDURA_PORTAL_BASE_URL"]


class HastyClock(ShiftedClock):
    """Sleeps take no time, yet both clocks go on: a device login waits for its first poll."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self._slept = 0.0

    def time(self) -> float:
        return super().time() + self._slept

    def monotonic(self) -> float:
        return super().monotonic() + self._slept

    async def sleep(self, seconds: float) -> None:
        self._slept += seconds
        await asyncio.sleep(0)


async def _device_login(request: Request) -> str:
    """The whole flow; the portal approves its code at once."""
    flow = run_sign_in(
        home=request.home,
        environ=request.environ,
        clock=HastyClock(request.now),
        options=LoginOptions(replace=True),
    )
    async with aclosing(flow) as states:
        kinds = [state.kind async for state in states]
    if kinds[-1] != "completed":
        raise UsageError(f"the sign-in ended {kinds[-1]}")
    return "saved by the device login"


def _sign_in(request: Request) -> str:
    if request.device:
        return asyncio.run(_device_login(request))
    entry = account_entry(
        request.answer,
        portal_url=_portal(request),
        inference_url="",
        client_id="hermes-cli",
        scope="inference:invoke",
        tls={},
        now=request.now,
    )
    _store(request).save_account(entry, renewal=False, now=request.now)
    return "saved, " + _drain(request)


def _mint(request: Request) -> str:
    entry = {
        "auth_method": "anonymous",
        "account_tier": "anonymous",
        "anon_token": request.answer["token"],
        "client_id": "nas-anonymous",
        "portal_base_url": _portal(request),
        "user_id": request.answer["user_id"],
        "org_id": request.answer["org_id"],
    }
    with _store(request).transaction() as transaction:
        if transaction.state.kind(request.now) in (Kind.ACCOUNT, Kind.DEAD):
            return "skipped"  # a mint never takes the place of an account
        transaction.save_guest(entry, renewal=False, now=request.now)
    return "minted"


def _sign_out(request: Request) -> str:
    out = asyncio.run(log_out(request.home, environ=request.environ, clock=ShiftedClock(request.now)))
    return "signed out" if out.changed else "nobody was signed in"


def _adopt(request: Request) -> str:
    """Follow the root: only a free tier does, and its apps move as after a sign-in."""
    found = asyncio.run(reconcile(request.home, environ=request.environ, clock=ShiftedClock(request.now)))
    return found.value


def _import(request: Request) -> str:
    """Take the root's account over and prove it, as the longer login offers; without one it is refused."""
    if offer_shared(request.home, environ=request.environ, clock=ShiftedClock(request.now)) is None:
        return "skipped"
    state = asyncio.run(import_shared(request.home, environ=request.environ, clock=ShiftedClock(request.now)))
    return state.kind


def _refresh(request: Request) -> str:
    store = _store(request)
    result = asyncio.run(
        refresh_account(
            store,
            force=request.force,
            environ=request.environ,
            clock=ShiftedClock(request.now),
            spent=spent_of(request.bug, store),
        )
    )
    if request.bug == "not_a_renewal" and result.outcome is Outcome.ROTATED and result.entry is not None:
        store.save_account(result.entry, renewal=False, now=request.now)
    return result.outcome.value


def _drain(request: Request) -> str:
    results = asyncio.run(
        drain(
            request.home,
            environ=request.environ,
            clock=ShiftedClock(request.now),
            records=records_of(request.bug, request.home),
        )
    )
    return ",".join(result.state for result in results)


def _tick(request: Request) -> str:
    return f"{_refresh(request)}, {_drain(request)}"


_TABLE: dict[str, Callable[[Request], str]] = {
    "sign_in": _sign_in,
    "mint": _mint,
    "sign_out": _sign_out,
    "adopt": _adopt,
    "import": _import,
    "refresh": _refresh,
    "drain": _drain,
    "tick": _tick,
}
