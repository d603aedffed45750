"""The portal's sign-in endpoints: requests out, checked values in (facts/signin.md 1.1 to 1.4). Every token goes to its issuer only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from nedura.errors import ConfigError, PortalError, Unreachable, UntrustedServer
from nedura.http import Answer, Client
from nedura.product import NEDURA, Product
from nedura.signin.addresses import inference_of, operator_portal, portal_of
from nedura.signin.device import DEVICE_GRANT_TYPE, DeviceCode, Lost, Reply, device_code
from nedura.signin.identity import Entry
from nedura.text import Secret, clean
from nedura.urls import origin_of

__all__ = ["PortalClient", "as_reply", "choose_inference", "choose_portal", "inference_now", "refusal"]

REVOKE_SECONDS: Final = 3.0
ACCOUNT_SECONDS: Final = 8.0
MODELS_SECONDS: Final = 5.0


def choose_portal(
    named: str, entry: Entry | None, product: Product, environ: Mapping[str, str]
) -> tuple[str, str]:
    """The portal to sign in at, and a warning: flag, environment, its alias, the stored one, the product's (#5745, #56864).

    Args:
        named: an explicit address; empty for none.
        entry: what is stored.
        product: names.
        environ: the real environment.

    Raises:
        ConfigError: a named address may not be used.
    """
    for source, value in (("--portal-url", named), ("the environment", operator_portal(product, environ))):
        value = value.strip().rstrip("/")
        if not value:
            continue
        if origin_of(value) is None or urlsplit(value).query or urlsplit(value).fragment:
            raise ConfigError(
                f"{clean(value, 100)} cannot be used as the portal.",
                advice=f"It came from {source}. It has to be https (http only on this machine), without user name, query or fragment.",
            )
        return value, ""
    try:
        return portal_of(entry or {}, product, environ), ""
    except ConfigError as error:
        return product.portal_url, f"{error.message} The usual service is used."


def choose_inference(
    named: object, fallback: str, product: Product, environ: Mapping[str, str]
) -> tuple[str, str]:
    """The model address of an account, and a warning when the one that was named may not be used (facts/signin.md 1.6)."""
    checked = inference_of(named, product, environ)
    if checked:
        return checked.rstrip("/"), ""
    warning = f"The model address {clean(named, 100)} may not be used; the usual one is." if named else ""
    return fallback.rstrip("/"), warning


def inference_now(entry: Entry, product: Product, environ: Mapping[str, str]) -> str:
    """The model address in force: the operator's override, which is never stored, else the account's own when it may be used."""
    operators = environ.get("NOUS_INFERENCE_BASE_URL", "").strip().rstrip("/")
    if operators and origin_of(operators) is not None:
        return operators
    return choose_inference(entry.get("inference_base_url"), product.inference_url, product, environ)[0]


@attrs.frozen(kw_only=True)
class PortalClient:
    """One portal over one open client.

    Attributes:
        client: open HTTP client.
        base: the portal's address without trailing slash.
        client_id: OAuth client.
    """

    client: Client = attrs.field(repr=False)
    base: str
    client_id: str = NEDURA.client_id

    async def device_code(self, scope: str) -> DeviceCode:
        """Ask for a code.

        Raises:
            Unreachable, UntrustedServer: no answer.
            PortalError: it refused, or its answer makes no sense.
        """
        form = {"client_id": self.client_id, "scope": scope}
        answer = await self.client.request("POST", f"{self.base}/api/oauth/device/code", form=form)
        if not answer.ok:
            raise refusal(answer, "The sign-in service gave no code")
        portal = origin_of(self.base)
        if portal is None:
            raise ConfigError(f"{clean(self.base)} cannot be used as the portal.")
        return device_code(answer.fields, portal)

    async def poll(self, code: Secret, deadline_s: float) -> Answer | None:
        """Ask once whether the code was approved; None when no answer came.

        Raises:
            UntrustedServer: final, another try cannot help.
            PortalError: a redirect or an oversized answer.
        """
        form: dict[str, str | Secret] = {
            "grant_type": DEVICE_GRANT_TYPE,
            "client_id": self.client_id,
            "device_code": code,
        }
        try:
            return await self.client.request(
                "POST", f"{self.base}/api/oauth/token", form=form, deadline_s=deadline_s
            )
        except UntrustedServer:
            raise
        except Unreachable:
            return None

    async def refresh(self, token: Secret) -> Answer:
        """Redeem a refresh token once; it travels in a header (facts/signin.md 1.3).

        Raises:
            Unreachable: no answer; the token may be spent.
            PortalError: a redirect or an oversized answer.
        """
        return await self.client.request(
            "POST",
            f"{self.base}/api/oauth/token",
            form={"grant_type": "refresh_token", "client_id": self.client_id},
            headers={"x-nous-refresh-token": token},
        )

    async def revoke(self, token: Secret) -> None:
        """Give a token back that nobody will use (RFC 7009); the caller treats failures as "at least tried".

        Raises:
            Unreachable, PortalError: it was not given back, as far as the portal says.
        """
        form: dict[str, str | Secret] = {"token": token, "client_id": self.client_id}
        answer = await self.client.request(
            "POST", f"{self.base}/api/oauth/revoke", form=form, deadline_s=REVOKE_SECONDS
        )
        if not answer.ok:
            raise refusal(answer, "The session was not ended")

    async def account(self, bearer: Secret) -> Mapping[str, Any]:
        """The account of a token.

        Raises:
            Unreachable, PortalError: it cannot be told.
        """
        answer = await self.client.request(
            "GET", f"{self.base}/api/oauth/account", bearer=bearer, deadline_s=ACCOUNT_SECONDS
        )
        if not answer.ok or answer.error:
            raise refusal(answer, "The account cannot be read")
        return answer.fields

    async def recommended_models(self) -> Mapping[str, Any]:
        """The portal's public model picks.

        Raises:
            Unreachable, PortalError: they cannot be read.
        """
        answer = await self.client.request(
            "GET", f"{self.base}/api/nous/recommended-models", deadline_s=MODELS_SECONDS
        )
        if not answer.ok or not answer.fields:
            raise refusal(answer, "The recommended models cannot be read")
        return answer.fields


def as_reply(answer: Answer | None, now: float) -> Reply | Lost:
    """An HTTP answer as the poller sees it."""
    if answer is None:
        return Lost(now=now)
    return Reply(
        now=now,
        status=answer.status,
        fields=answer.fields if isinstance(answer.body, Mapping) else None,
        retry_after=answer.retry_after,
        mitigated="x-vercel-mitigated" in answer.headers,
    )


def refusal(answer: Answer, what: str) -> PortalError:
    """A refusing answer as an error: our words, its code."""
    return PortalError(
        f"{what} (HTTP {answer.status}).",
        status=answer.status,
        error=answer.error or ("malformed" if answer.ok else ""),
        retry_after=answer.retry_after,
    )
