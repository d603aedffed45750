"""Which addresses a stored token may travel to. No IO (facts/signin.md 1, 1.6; threats.md 8).

A token goes only to the origin that issued it. A stored origin is believed when it is the product's portal, this machine, or the one
that the operator named in the real environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from nedura.errors import ConfigError
from nedura.product import Product
from nedura.text import clean
from nedura.urls import origin_of

__all__ = ["inference_of", "operator_portal", "portal_of", "same_portal", "stored_tls"]

_OLD_PORTAL_HOST: Final = "api.nousresearch.com"
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1")


def operator_portal(product: Product, environ: Mapping[str, str]) -> str:
    """The portal that the operator named, without trailing slash; empty when none."""
    named = product.setting(environ, "PORTAL_BASE_URL") or environ.get("NOUS_PORTAL_BASE_URL", "").strip()
    return named.rstrip("/")


def portal_of(entry: Mapping[str, Any], product: Product, environ: Mapping[str, str]) -> str:
    """The portal that issued an entry's tokens.

    Raises:
        ConfigError: the stored address is not one that tokens may be sent to.
    """
    stored = entry.get("portal_base_url")
    stored = stored.rstrip("/") if isinstance(stored, str) else ""
    if not stored or urlsplit(stored).hostname == _OLD_PORTAL_HOST:
        return product.portal_url
    origin = origin_of(stored)
    operators = origin_of(operator_portal(product, environ))
    if origin is not None and (
        origin == origin_of(product.portal_url) or origin == operators or origin.host in _LOCAL_HOSTS
    ):
        return stored
    raise ConfigError(
        f"The saved sign-in belongs to another service ({clean(stored, 80)}).",
        advice=f"Set {product.env('PORTAL_BASE_URL')} to it, or sign in again.",
    )


def same_portal(first: str, second: str) -> bool:
    """Whether two addresses have the same origin."""
    origin = origin_of(first)
    return origin is not None and origin == origin_of(second)


def stored_tls(entry: Mapping[str, Any], target: str, product: Product) -> Mapping[str, Any]:
    """The trust choices of an entry as far as they hold for `target`: they were made for its portal and go nowhere else."""
    tls = entry.get("tls")
    portal = str(entry.get("portal_base_url") or product.portal_url)
    return tls if isinstance(tls, Mapping) and same_portal(portal, target) else {}


def inference_of(named: object, product: Product, environ: Mapping[str, str]) -> str:
    """A model address that a token answer names, when it may be used; else empty (the stored one stays)."""
    origin = origin_of(named) if isinstance(named, str) else None
    if origin is None or not isinstance(named, str):
        return ""
    official = {origin_of(product.inference_url), origin_of(product.welcome_url)}
    operators = origin_of(environ.get("NOUS_INFERENCE_BASE_URL", "").strip())
    return named if origin in official or (operators is not None and origin.host == operators.host) else ""
