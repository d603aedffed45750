"""What a sign-in does to the config, once: a config on the welcome route moves to the account's host; everybody else's stays (#68144)."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.clock import Clock
from nedura.config import edit_config, read_config
from nedura.errors import ConfigError, StoreError
from nedura.http import open_client
from nedura.product import NEDURA, Product
from nedura.signin.background import in_thread
from nedura.signin.identity import Entry
from nedura.signin.models import recommended_nous_default_model
from nedura.signin.refresh import ClientFactory
from nedura.text import clean
from nedura.urls import origin_of

__all__ = [
    "WELCOME_MODEL",
    "Move",
    "Settled",
    "decide_move",
    "needs_settling",
    "settle_after_upgrade",
    "welcome_hosts",
]

WELCOME_MODEL: Final = "nous/welcome"

log = logging.getLogger("nedura.signin.settle")


class Move(Enum):
    """What has to change in a config."""

    NOTHING = "nothing"
    HOST = "host"
    HOST_AND_MODEL = "host_and_model"


@attrs.frozen(kw_only=True)
class Settled:
    """The result.

    Attributes:
        model: default model now in the config; empty when none is set.
        changed: whether this call changed the config.
    """

    model: str = ""
    changed: bool = False


def welcome_hosts(product: Product, environ: Mapping[str, str]) -> frozenset[str]:
    """Hosts of the welcome route: the product's own and those named for development."""
    own = origin_of(product.welcome_url)
    extra = product.setting(environ, "EXTRA_WELCOME_HOSTS").lower().split(",")
    return frozenset({own.host if own else ""} | {host.strip() for host in extra}) - {""}


def _section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `model` section; a plain string names the default model."""
    model = config.get("model")
    if isinstance(model, Mapping):
        return model
    return {"default": model} if isinstance(model, str) else {}


def _text(value: object) -> str:
    return str(value).strip() if isinstance(value, str) else ""


def decide_move(config: Mapping[str, Any], hosts: frozenset[str]) -> Move:
    """Judge a config (facts/signin.md 4): only the welcome route moves, the user's own model never does.

    Args:
        config: the whole config.
        hosts: hosts of the welcome route.
    """
    section = _section(config)
    if _text(section.get("default")) == WELCOME_MODEL:
        return Move.HOST_AND_MODEL
    origin = origin_of(_text(section.get("base_url")))
    return Move.HOST if origin is not None and origin.host in hosts else Move.NOTHING


def _apply(content: MutableMapping[str, Any], move: Move, host: str, pick: str) -> None:
    section = content.get("model")
    if not isinstance(section, MutableMapping):
        content["model"] = {"default": section}
        section = content["model"]
    elif getattr(section, "merge", None) or (hasattr(section, "yaml_anchor") and section.yaml_anchor()):
        section = {**section}  # shared with other places of the file by an anchor: those stay as they are
        content["model"] = section
    section["base_url"] = host
    section["provider"] = "nous"
    for stale in ("api_key", "api_mode"):
        section.pop(stale, None)
    if move is Move.HOST_AND_MODEL:
        if pick:
            section["default"] = pick
        else:
            section.pop("default", None)  # a welcome model on the account's host would be billed there


def needs_settling(home: Path, product: Product, environ: Mapping[str, str]) -> bool:
    """Whether a config still stands on the welcome route, as after a sign-in that was killed between its save and its end."""
    try:
        return decide_move(read_config(home).data, welcome_hosts(product, environ)) is not Move.NOTHING
    except ConfigError as error:
        log.warning("config not settled: %s", error.message)
        return False


Pick = Callable[[], Awaitable[str]]


async def settle_after_upgrade(
    home: Path,
    entry: Entry,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
    pick: Pick | None = None,
) -> Settled:
    """Complete a sign-in in the config: host and default model in one write, comments kept. Called once, with no lock held.

    Never raises for a config that cannot be read or written: it is logged and left as it is.

    Args:
        home: the profile's home.
        entry: the account that was saved.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
        pick: finds the recommended model; None asks the portal.
    """
    environ = os.environ if environ is None else environ
    hosts = welcome_hosts(product, environ)
    try:
        before = read_config(home)
    except ConfigError as error:
        log.warning("config not settled: %s", error.message)
        return Settled()
    current = _text(_section(before.data).get("default"))
    move = decide_move(before.data, hosts)
    if move is Move.NOTHING:
        return Settled(model=current)
    host = _text(entry.get("inference_base_url")) or product.inference_url
    found = ""
    if move is Move.HOST_AND_MODEL:
        found = (
            await pick()
            if pick is not None
            else await _recommended(home, entry, product, environ, clock, client_factory)
        )
    changed = Move.NOTHING

    def change(content: MutableMapping[str, Any]) -> None:
        nonlocal changed
        changed = decide_move(content, hosts)  # the user may have chosen meanwhile
        if changed is Move.HOST_AND_MODEL and move is not Move.HOST_AND_MODEL:
            changed = Move.NOTHING
        if changed is not Move.NOTHING:
            _apply(content, changed, host, found)

    try:
        after = await in_thread(lambda: edit_config(home, change))
    except (ConfigError, StoreError) as error:
        log.warning("config not settled: %s", clean(error.message))
        return Settled(model=current)
    return Settled(model=_text(_section(after.data).get("default")), changed=changed is not Move.NOTHING)


async def _recommended(
    home: Path,
    entry: Entry,
    product: Product,
    environ: Mapping[str, str],
    clock: Clock | None,
    client_factory: ClientFactory,
) -> str:
    found = await recommended_nous_default_model(
        home, entry, product=product, environ=environ, clock=clock, client_factory=client_factory
    )
    return found.model
