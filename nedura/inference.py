"""The model route: OpenAI-compatible chat completions, streamed, with the account's token (decision 29).

A token is only ever sent to the host that its own record names (threats.md 8).
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.config import read_config
from nedura.errors import ConfigError, PortalError, RefusedError
from nedura.fanin import Report, stream
from nedura.http import Answer, open_client, user_agent
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.free_tier import FreeTier
from nedura.signin.identity import is_guest
from nedura.signin.refresh import refresh_account
from nedura.text import Secret, clean, redact
from nedura.trust import resolve_trust
from nedura.urls import origin_of

__all__ = ["Route", "delta_of", "resolve_route", "stream_reply"]

HEAD_DEADLINE: Final = 60.0
"""Seconds until a model begins to answer."""


@attrs.frozen(kw_only=True)
class Route:
    """Where a turn goes.

    Attributes:
        url: the completions endpoint.
        model: model id.
        token: bearer token.
        tls: stored trust settings of the account.
    """

    url: str
    model: str
    token: Secret
    tls: Mapping[str, Any] = attrs.field(factory=dict)


def resolve_route(home: Path, *, model: str | None = None, product: Product = NEDURA) -> Route:
    """Model, host and token of a home: its config, and the account that is signed in.

    Args:
        home: the home.
        model: model id that wins over the config's.
        product: names and default addresses.

    Raises:
        RefusedError: nobody is signed in, or no model is chosen.
        ConfigError: the configured host is not the account's.
    """
    config = read_config(home)
    entry = AccountStore(home, product=product).read().entry or {}
    token = entry.get("access_token")
    if not isinstance(token, str) or not token:
        raise RefusedError("Nobody is signed in.", advice="Run: nedura auth upgrade")
    chosen = model or _text(config.get("model.default")) or _text(config.get("model"))
    if not chosen:
        raise RefusedError("No model is chosen.", advice="Choose one: nedura model")
    issued = str(entry.get("inference_base_url") or product.inference_url)
    base = _text(config.get("model.base_url")) or issued
    if origin_of(base) is None or origin_of(base) != origin_of(issued):
        raise ConfigError(
            "The configured model host is not the one this account's token is for.",
            advice="Remove model.base_url. Run: nedura config edit",
        )
    tls = entry.get("tls")
    return Route(
        url=f"{base.rstrip('/')}/chat/completions",
        model=chosen,
        token=Secret(token),
        tls=tls if isinstance(tls, Mapping) else {},
    )


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def delta_of(line: str) -> str | None:
    """The text that one server-sent line adds; empty for lines that add none, None for the end of the stream."""
    if not line.startswith("data:"):
        return ""
    data = line.removeprefix("data:").strip()
    if data == "[DONE]":
        return None
    try:
        choice = json.loads(data)["choices"][0]
        content = choice.get("delta", {}).get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
    return content if isinstance(content, str) else ""


def _ends(line: str) -> bool:
    """Whether a server-sent line says that the answer is whole.

    Raises:
        PortalError: it says that the model failed in the middle.
    """
    if not line.startswith("data:"):
        return False
    try:
        data = json.loads(line.removeprefix("data:"))
        error = data.get("error")
        reason = None if error else data["choices"][0].get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    if error:
        said = error.get("message") if isinstance(error, Mapping) else error
        raise PortalError(
            f"The model's host reports an error: {clean(redact(str(said)), 200).rstrip('.')}.",
            advice="Ask again.",
        )
    return reason is not None


def stream_reply(
    home: Path,
    messages: Sequence[Mapping[str, str]],
    *,
    model: str | None = None,
    reasoning: str = "",
    transport: Any = None,
    environ: Mapping[str, str] | None = None,
    product: Product = NEDURA,
) -> AsyncGenerator[str, None]:
    """Send a conversation and yield the reply piece by piece. Close the generator to cancel.

    Args:
        home: whose config and account count.
        messages: `{"role", "content"}` in order, the new one last.
        model: model id that wins over the config's.
        reasoning: reasoning effort; empty leaves it to the model.
        transport: the HTTP client's transport, for tests.
        environ: the real environment.
        product: names and default addresses.

    Raises:
        RefusedError: nobody is signed in, or no model is chosen.
        ConfigError: the configured host is not the account's.
        PortalError: the model's host refused.
        Unreachable: it did not answer.
    """
    extra = {"reasoning_effort": reasoning} if reasoning else {}
    environ = os.environ if environ is None else environ

    async def job(report: Report[str]) -> None:
        await _renewed(home, product, environ, None)
        route = resolve_route(home, model=model, product=product)
        try:
            await _read_reply(route, messages, extra, transport, product, report)
        except PortalError as error:
            if error.status not in (401, 403):
                raise
            # nothing was streamed yet: a token that was revoked early is renewed once
            await _renewed(home, product, environ, route.token)
            again = resolve_route(home, model=model, product=product)
            if again.token == route.token:
                raise
            await _read_reply(again, messages, extra, transport, product, report)

    return stream([job])


async def _renewed(home: Path, product: Product, environ: Mapping[str, str], rejected: Secret | None) -> None:
    """A token that can be used, for an account as for a free tier; a failure leaves it to the route to say so."""
    store = AccountStore(home, environ=environ, product=product)
    if is_guest(store.read().entry):
        free = FreeTier(home=home, surface="gateway", background=True, product=product, environ=environ)
        await free.bearer(rejected=rejected)
        return
    await refresh_account(store, rejected=rejected, product=product, environ=environ)


async def _read_reply(
    route: Route,
    messages: Sequence[Mapping[str, str]],
    extra: Mapping[str, str],
    transport: Any,
    product: Product,
    report: Report[str],
) -> None:
    body = {
        "model": route.model,
        "messages": [dict(message) for message in messages],
        "stream": True,
        **extra,
    }
    headers = {"accept": "text/event-stream", "user-agent": user_agent(product.user_agent, "gateway")}
    trust = resolve_trust(stored=route.tls)
    async with (
        open_client(trust, timeout=HEAD_DEADLINE, transport=transport) as client,
        client.lines("POST", route.url, headers=headers, json=body, bearer=route.token) as answer,
    ):
        if isinstance(answer, Answer):
            raise _refused(answer)
        finished = False
        async for line in answer:
            piece = delta_of(line)
            if piece is None:
                return
            if piece:
                report(piece)
            finished = _ends(line) or finished
        if not finished:  # half an answer must not pass for a whole one
            raise PortalError("The answer broke off: the model's host ended it early.", advice="Ask again.")


def _refused(answer: Answer) -> PortalError:
    match answer.status:
        case 401 | 403:
            return PortalError(
                "The model's host did not accept the account.",
                status=answer.status,
                error=answer.error,
                advice="Run: nedura auth status",
            )
        case 429:
            return PortalError(
                "The model is busy or the plan's limit is reached.", status=429, error=answer.error
            )
        case _:
            return PortalError(
                f"The model's host refused the message ({answer.status}).",
                status=answer.status,
                error=clean(answer.error, 80),
            )
