"""The models an account may use, and the one that its config starts with."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import attrs

from nedura.clock import Clock, SystemClock
from nedura.config import edit_config, read_config
from nedura.errors import PortalError, RefusedError
from nedura.http import open_client, resolve_trust
from nedura.product import NEDURA, Product
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import stored_tls
from nedura.signin.background import in_thread
from nedura.signin.models import recommended_nous_default_model
from nedura.signin.portal import choose_inference, inference_now, refusal
from nedura.signin.refresh import ClientFactory, Outcome, refresh_account
from nedura.text import clean

__all__ = ["ModelChoice", "list_models", "set_default_model"]


@attrs.frozen(kw_only=True)
class ModelChoice:
    """What can be chosen.

    Attributes:
        models: ids, the recommended one first.
        current: default model of the config; empty when none is set.
        recommended: the pick for the account's tier; may be empty.
    """

    models: tuple[str, ...] = ()
    current: str = ""
    recommended: str = ""


def _id(value: object) -> str:
    text = value if isinstance(value, str) else ""
    plain = text.isascii() and text.isprintable() and " " not in text
    return text if 0 < len(text) <= 100 and plain else ""


async def list_models(
    home: Path,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
) -> ModelChoice:
    """Ask the model route what this account may use.

    Args:
        home: the profile's home.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.

    Raises:
        RefusedError: nobody is signed in, or the session has ended.
        Unreachable, PortalError: the list cannot be had.
        ConfigError: the config cannot be read.
    """
    environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    store = AccountStore(home, environ=environ, product=product)
    login = await refresh_account(
        store, product=product, environ=environ, clock=clock, client_factory=client_factory
    )
    entry, bearer = login.entry or {}, login.bearer
    if bearer is None:
        ended = login.outcome in (Outcome.ENDED, Outcome.NO_ACCOUNT)
        raise RefusedError(
            "Nobody is signed in."
            if ended
            else f"The sign-in cannot be used now: {login.detail or 'try again soon'}.",
            advice="Sign in with: nedura auth upgrade" if ended else "",
        )
    base = inference_now(entry, product, environ)
    trust = resolve_trust(stored=stored_tls(entry, base, product), environ=environ, product=product)
    async with client_factory(trust, timeout=15.0, environ=environ) as client:
        answer = await client.request("GET", f"{base}/models", bearer=bearer)
    rows = answer.fields.get("data")
    if not answer.ok or not isinstance(rows, list):
        raise (
            refusal(answer, "The list of models cannot be had")
            if not answer.ok
            else PortalError("The list of models makes no sense.", error="malformed")
        )
    ids = [_id(row.get("id")) for row in rows if isinstance(row, Mapping)]
    pick = await recommended_nous_default_model(
        home, entry, product=product, environ=environ, clock=clock, client_factory=client_factory
    )
    models = tuple(dict.fromkeys(filter(None, [pick.model if pick.model in ids else "", *ids])))
    config = read_config(home)
    current = config.get("model.default") if isinstance(config.get("model"), dict) else config.get("model")
    return ModelChoice(
        models=models, current=current if isinstance(current, str) else "", recommended=pick.model
    )


async def set_default_model(
    home: Path,
    model: str,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Make a model the default, on the account's host, in one write that keeps comments.

    Args:
        home: the profile's home.
        model: model id.
        product: names.
        environ: the real environment.

    Raises:
        RefusedError: it is no model id.
        ConfigError: the config cannot be read or written.
    """
    environ = os.environ if environ is None else environ
    if not _id(model):
        raise RefusedError(f"{clean(model, 60)!r} is no model id.")
    entry = AccountStore(home, environ=environ, product=product).read().entry or {}
    base, _ = choose_inference(entry.get("inference_base_url"), product.inference_url, product, environ)

    def change(content: MutableMapping[str, object]) -> None:
        section = content.get("model")
        if not isinstance(section, MutableMapping):
            content["model"] = {}
            section = content["model"]
        assert isinstance(section, MutableMapping)
        section["default"], section["provider"], section["base_url"] = model, "nous", base
        for stale in ("api_key", "api_mode"):
            section.pop(stale, None)

    await in_thread(lambda: edit_config(home, change))
