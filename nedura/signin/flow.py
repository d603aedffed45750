"""The sign-in itself: one async generator behind every surface.

`run_sign_in` yields the states of `nedura.signin.states` and always ends with exactly one terminal one. It never yields while it holds a
lock, a client, a timeout or the caller's scope; task cancellation and closing the generator pass through with nothing saved.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, asynccontextmanager
from pathlib import Path

from nedura.clock import Clock, SystemClock
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.attempt import Attempt, LoginOptions, Parts
from nedura.signin.refresh import ClientFactory
from nedura.signin.states import SignInState

__all__ = ["PersistGuard", "Scope", "login_nous", "run_sign_in", "sign_in"]

PersistGuard = Callable[[], AbstractContextManager[bool] | AbstractAsyncContextManager[bool]]
"""Makes a context manager that yields whether the account may be saved; it is held around the save alone."""

Scope = Callable[[], AbstractContextManager[object]]
"""Makes a context manager that binds an activity to its profile; it is entered around the first look and the save alone."""


async def run_sign_in(
    *,
    home: Path | None = None,
    product: Product = NEDURA,
    timeout: float = 15.0,
    cancelled: Callable[[], bool] | None = None,
    persist_guard: PersistGuard | None = None,
    scope: Scope | None = None,
    client_factory: ClientFactory | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    options: LoginOptions | None = None,
    parts: Parts | None = None,
) -> AsyncGenerator[SignInState, None]:
    """Sign in with the device login.

    Yields `Code`, `Waiting` and then exactly one of `Completed`, `Cancelled`, `TimedOut`, `Failed`, `AlreadySignedIn`. Works with and
    without a free tier on disk. Iterate it inside `contextlib.aclosing`, or use `sign_in`.

    Args:
        home: the profile's home; None means the active one, looked up inside `scope`.
        product: names.
        timeout: seconds for one request.
        cancelled: asked at least every 100 ms at every wait, and once more before the save; True wins and nothing is saved.
        persist_guard: a surface's own cancel check, made atomic with the save. Entered in the thread that saves.
        scope: binds the profile; never held across a yield or a network wait.
        client_factory: opens HTTP clients.
        clock: time.
        environ: the real environment.
        options: what the longer login adds (portal, scope, trust, label).
        parts: stand-ins for store, settle and drain.

    Raises:
        asyncio.CancelledError: the task was cancelled; nothing was saved unless the save had already begun.
    """
    attempt = Attempt(
        home=home,
        product=product,
        timeout=timeout,
        cancelled=cancelled,
        persist_guard=persist_guard,
        scope=scope,
        client_factory=client_factory or open_client,
        clock=clock or SystemClock(),
        environ=os.environ if environ is None else environ,
        options=options or LoginOptions(),
        parts=parts or Parts(),
    )
    state: SignInState | None = None
    while state is None or not state.terminal:
        state = await attempt.advance()
        yield state
    await attempt.give_back()


@asynccontextmanager
async def sign_in(
    *,
    home: Path | None = None,
    product: Product = NEDURA,
    timeout: float = 15.0,
    cancelled: Callable[[], bool] | None = None,
    persist_guard: PersistGuard | None = None,
    scope: Scope | None = None,
    client_factory: ClientFactory | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[AsyncGenerator[SignInState, None]]:
    """Own a `run_sign_in`: closed at the end of the block however it is left. Iterate over the value in an `async for`.

    Args:
        home: as for `run_sign_in`, like every argument here.
        product: names.
        timeout: seconds for one request.
        cancelled: asked at every wait.
        persist_guard: held around the save.
        scope: binds the profile.
        client_factory: opens HTTP clients.
        clock: time.
        environ: the real environment.
    """
    states = run_sign_in(
        home=home,
        product=product,
        timeout=timeout,
        cancelled=cancelled,
        persist_guard=persist_guard,
        scope=scope,
        client_factory=client_factory,
        clock=clock,
        environ=environ,
    )
    async with aclosing(states):
        yield states


def login_nous(
    options: LoginOptions,
    *,
    home: Path | None = None,
    product: Product = NEDURA,
    timeout: float = 15.0,
    cancelled: Callable[[], bool] | None = None,
    client_factory: ClientFactory | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[SignInState, None]:
    """The longer login of `nedura model` and `nedura auth add nous`: the same states, with their flags, also over an account.

    Args:
        options: what the flags say.
        home: as for `run_sign_in`, like the rest.
        product: names.
        timeout: seconds for one request.
        cancelled: asked at every wait.
        client_factory: opens HTTP clients.
        clock: time.
        environ: the real environment.
    """
    return run_sign_in(
        home=home,
        product=product,
        timeout=timeout,
        cancelled=cancelled,
        client_factory=client_factory,
        clock=clock,
        environ=environ,
        options=options,
    )
