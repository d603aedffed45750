"""Which model a fresh account should start with (facts/signin.md 1.5 and 4). The choice is pure; two caches save the portal's time.

It contacts the portal: never call it on a hot path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from nedura.clock import Clock, SystemClock
from nedura.errors import ConfigError, NeduraError, RecordMissing, StoreError
from nedura.http import open_client, resolve_trust
from nedura.product import NEDURA, Product
from nedura.records import make_folder, read_json, write_json
from nedura.signin.accounts import AccountStore
from nedura.signin.addresses import portal_of, stored_tls
from nedura.signin.background import in_thread
from nedura.signin.identity import Entry, is_guest
from nedura.signin.portal import PortalClient, choose_portal
from nedura.signin.refresh import ClientFactory
from nedura.signin.tokens import fingerprint, finite
from nedura.text import Secret

__all__ = [
    "Caches",
    "CatalogueRow",
    "Recommendation",
    "choose_default",
    "is_free_account",
    "recommended_ids",
    "recommended_nous_default_model",
]

MODELS_KEPT: Final = 600.0
TIER_KEPT: Final = 180.0
CACHE_FILE: Final = "nous_recommended_cache.json"

log = logging.getLogger("nedura.signin.models")


@attrs.frozen(kw_only=True)
class CatalogueRow:
    """One curated model of a host application.

    Attributes:
        id: model id.
        price: cost in dollars per million tokens; 0 is free.
        subscription_billed: usage counts against a subscription.
        silent_default: the labelled default of the catalogue.
    """

    id: str
    price: float = 0.0
    subscription_billed: bool = False
    silent_default: bool = False


@attrs.frozen(kw_only=True)
class Recommendation:
    """The answer of `recommended_nous_default_model`, also the body of GET /api/model/recommended-default.

    Attributes:
        provider: always `nous`.
        model: model id; empty when plan and policy admit nothing, or nothing could be learnt.
        free_tier: whether the account is on the free plan.
    """

    provider: Literal["nous"] = "nous"
    model: str = ""
    free_tier: bool = False


def is_free_account(account: Mapping[str, Any]) -> bool:
    """Whether an account's answer says that it does not pay; anything unclear counts as paying."""
    access = account.get("paid_service_access")
    if not isinstance(access, Mapping):
        return False
    verdict = access.get("allowed")
    return (access.get("paid_access") if verdict is None else verdict) is False


def recommended_ids(picks: Mapping[str, Any], *, free: bool) -> tuple[str, ...]:
    """Model ids of the portal's free or paid list, in its order; rows that are no model id are left out."""
    rows = picks.get("freeRecommendedModels" if free else "paidRecommendedModels")
    names = (
        [row.get("modelName") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    )
    return tuple(dict.fromkeys(name for name in names[:200] if isinstance(name, str) and _plain(name)))


def _plain(name: str) -> bool:
    return (
        0 < len(name) <= 100
        and name.isascii()
        and name.isprintable()
        and " " not in name
        and "://" not in name
    )


def choose_default(
    picks: Mapping[str, Any],
    *,
    free: bool,
    catalogue: tuple[CatalogueRow, ...] = (),
    allowed: Callable[[str], bool] | None = None,
) -> str:
    """Pick a model; empty when nothing is admitted.

    Curated rows come first, then the portal's own (free when the account is). The organisation's policy narrows before the tier does,
    unless it would leave nothing.

    Args:
        picks: the portal's recommended models.
        free: whether the account does not pay.
        catalogue: curated models.
        allowed: the organisation's policy.
    """
    known = {row.id for row in catalogue}
    portal = [CatalogueRow(id=name) for name in recommended_ids(picks, free=free) if name not in known]
    rows = [*catalogue, *portal]
    if allowed is not None:
        rows = [row for row in rows if allowed(row.id)] or rows
    if free:
        rows = [row for row in rows if row.price == 0 or row.subscription_billed]
        rows = [row for row in rows if not row.subscription_billed] or rows
    silent = next((row.id for row in rows if row.silent_default), "")
    return silent or (rows[0].id if rows else "")


@attrs.define
class Caches:
    """What was learnt a short while ago, in this process.

    Attributes:
        picks: portal -> (monotonic seconds, answer).
        tiers: fingerprint of the bearer -> (monotonic seconds, verdict).
    """

    picks: dict[str, tuple[float, Mapping[str, Any]]] = attrs.field(factory=dict, repr=False)
    tiers: dict[str, tuple[float, bool]] = attrs.field(factory=dict, repr=False)


_caches: Final = Caches()


async def recommended_nous_default_model(
    home: Path,
    entry: Entry | None = None,
    *,
    product: Product = NEDURA,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    client_factory: ClientFactory = open_client,
    catalogue: tuple[CatalogueRow, ...] = (),
    allowed: Callable[[str], bool] | None = None,
    caches: Caches | None = None,
) -> Recommendation:
    """The default model for an account's tier. Never raises: what cannot be learnt makes an empty pick.

    Args:
        home: the profile's home; holds the disk cache.
        entry: the account; None reads the profile's.
        product: names.
        environ: the real environment.
        clock: time.
        client_factory: opens HTTP clients.
        catalogue: curated models of a host application.
        allowed: an organisation's policy.
        caches: where answers of a short while ago are kept; None means this process's own.
    """
    environ = os.environ if environ is None else environ
    asker = _Asker(
        home=home,
        clock=clock or SystemClock(),
        caches=_caches if caches is None else caches,
        product=product,
        environ=environ,
        client_factory=client_factory,
    )
    try:
        if entry is None:
            entry = AccountStore(home, environ=environ, product=product).read().entry
        entry = {} if is_guest(entry) else entry or {}
        free, picks = await asker.learn(entry)
    except NeduraError as error:
        log.warning("recommended models: %s", error.message)
        return Recommendation()
    model = choose_default(picks, free=free, catalogue=catalogue, allowed=allowed)
    return Recommendation(model=model, free_tier=free)


@attrs.define(kw_only=True)
class _Asker:
    home: Path
    clock: Clock
    caches: Caches
    product: Product
    environ: Mapping[str, str] = attrs.field(repr=False)
    client_factory: ClientFactory

    async def learn(self, entry: Entry) -> tuple[bool, Mapping[str, Any]]:
        """Tier and picks, each from its cache or over one client."""
        token = entry.get("access_token")
        bearer = Secret(token) if isinstance(token, str) and token else None
        base = choose_portal("", None, self.product, self.environ)[0]
        if bearer is not None:
            try:
                base = portal_of(entry, self.product, self.environ)
            except ConfigError as error:  # no issuer that may be asked: the tier stays unknown
                log.warning("account tier: %s", error.message)
                bearer = None
        key = fingerprint(bearer.reveal()) if bearer else ""
        free, picks = self._tier(key), self._fresh(base)
        if (free is not None or bearer is None) and picks is not None:
            return bool(free), picks
        stored = stored_tls(entry, base, self.product)
        trust = resolve_trust(stored=stored, environ=self.environ, product=self.product)
        async with self.client_factory(trust, timeout=8.0, environ=self.environ) as client:
            portal = PortalClient(client=client, base=base, client_id=self.product.client_id)
            if free is None and bearer is not None:
                free = await self._ask_tier(portal, bearer, key)
            if picks is None:
                picks = await self._ask_picks(portal, base)
        return bool(free), picks

    def _tier(self, key: str) -> bool | None:
        at, verdict = self.caches.tiers.get(key, (float("-inf"), False))
        return verdict if key and self.clock.monotonic() - at < TIER_KEPT else None

    def _fresh(self, base: str) -> Mapping[str, Any] | None:
        at, picks = self.caches.picks.get(base, (float("-inf"), {}))
        if self.clock.monotonic() - at < MODELS_KEPT:
            return picks
        stamp, kept = self._disk().get(base, (0.0, None))
        return kept if kept is not None and 0 <= self.clock.time() - stamp < MODELS_KEPT else None

    async def _ask_tier(self, portal: PortalClient, bearer: Secret, key: str) -> bool:
        try:
            verdict = is_free_account(await portal.account(bearer))
        except NeduraError as error:
            log.warning("account tier: %s", error.message)
            return False  # unknown counts as not free, and is not remembered
        self.caches.tiers[key] = (self.clock.monotonic(), verdict)
        return verdict

    async def _ask_picks(self, portal: PortalClient, base: str) -> Mapping[str, Any]:
        try:
            picks = await portal.recommended_models()
        except NeduraError as error:
            log.warning("recommended models: %s", error.message)
            return (
                self._disk().get(base, (0.0, None))[1] or {}
            )  # stale is better than nothing, and stays stale
        self.caches.picks[base] = (self.clock.monotonic(), picks)
        await in_thread(lambda: self._keep(base, picks))
        return picks

    @property
    def _path(self) -> Path:
        return self.home / "cache" / CACHE_FILE

    def _disk(self) -> dict[str, tuple[float, Mapping[str, Any] | None]]:
        try:
            document = read_json(self._path)
        except RecordMissing:
            return {}
        except StoreError as error:
            log.info("model cache: %s", error.message)  # a cache: it is asked again and replaced
            return {}
        rows = document.items() if isinstance(document, Mapping) else ()
        return {
            base: (stamp, row["data"])
            for base, row in rows
            if isinstance(row, Mapping)
            and (stamp := finite(row.get("ts"))) is not None
            and isinstance(row.get("data"), Mapping)
        }

    def _keep(self, base: str, picks: Mapping[str, Any]) -> None:
        rows = {name: {"data": data, "ts": stamp} for name, (stamp, data) in self._disk().items()}
        rows[base] = {"data": picks, "ts": self.clock.time()}
        try:
            make_folder(self._path.parent)
            write_json(self._path, rows)
        except StoreError as error:
            log.info("model cache: %s", error.message)
