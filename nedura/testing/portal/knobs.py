"""Settings and faults of the development portal (facts/signin.md 1.11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from nedura.errors import UsageError
from nedura.product import NEDURA

__all__ = ["ROUTES", "Fault", "FaultQueue", "Knobs"]

ROUTES: Final = (
    "device_code", "token.device", "token.refresh", "token.other", "revoke", "account", "recommended_models",
    "anon.create", "anon.exchange", "anon.challenge", "anon.claim", "connectors", "models", "chat", "device_page",
)  # fmt: skip
"""Names under which faults are planted and requests are counted."""


@attrs.define(kw_only=True)
class Knobs:
    """How the portal behaves until told otherwise.

    Attributes:
        interval: seconds between polls, as the device answer names them; `omit_interval` leaves it out.
        expires_in: life of a device code in seconds.
        access_ttl, family_ttl: seconds an access token and a whole refresh family live; rotation extends neither.
        rotation: a refresh hands out a new refresh token and spends the old one.
        reuse_detection: redeeming a spent token revokes its family.
        strict_gap: a poll that arrives sooner than `interval` after the previous arrival is answered `slow_down` (+5 s for good).
        auto_approve: e-mail of the account that approves every new code at once; empty for none.
        granted_scope: scope put into tokens whatever was asked for; empty grants what was asked.
        jwt_claims: extra claims for account tokens; a null value removes a claim.
        inference: `official` names the product's hosts in token answers, `self` this portal's own `/v1`.
        verification_path: page that the device answer links to (`/manage-subscription` is a field failure).
        verification_uri: whole link in place of ours, for hostile values.
        anon_gate: open, closed (404), paused (503) or secret (401 without the shared secret).
        anon_secret: the shared secret that an anonymous request must carry when the gate is `secret`.
        challenge: whether an exchange must first pass the browser check.
        cohort_carried: what a claim says about the preview cohort.
        connectors_omitted: a claim answers without `connectors`, as an old portal does.
        claim_clients: client ids that may claim; empty for any.
        guest_idle_days: named in a create answer.
    """

    interval: int = 5
    omit_interval: bool = False
    omit_complete_uri: bool = False
    expires_in: int = 600
    access_ttl: int = 900
    family_ttl: int = 30 * 86400
    rotation: bool = True
    reuse_detection: bool = True
    strict_gap: bool = False
    auto_approve: str = ""
    granted_scope: str = ""
    jwt_claims: dict[str, Any] = attrs.field(factory=dict)
    inference: Literal["official", "self"] = "official"
    verification_path: str = "/device"
    verification_uri: str = ""
    anon_gate: Literal["open", "closed", "paused", "secret"] = "open"
    anon_secret: str = "dev-secret"
    challenge: Literal["off", "required", "optional"] = "off"
    cohort_carried: bool = False
    connectors_omitted: bool = False
    claim_clients: tuple[str, ...] = ()
    guest_idle_days: int = 14
    paid_models: tuple[str, ...] = ("nous/hermes-4-405b", "nous/hermes-4-70b")
    free_models: tuple[str, ...] = ("nous/hermes-4-14b",)
    inference_url: str = NEDURA.inference_url
    welcome_url: str = NEDURA.welcome_url

    def change(self, values: Mapping[str, Any]) -> None:
        """Set several knobs by name.

        Raises:
            UsageError: there is no such knob.
        """
        known = {field.name for field in attrs.fields(type(self))}
        if unknown := sorted(values.keys() - known):
            raise UsageError(f"The portal has no knob {unknown[0]!r}.")
        for name, value in values.items():
            setattr(self, name, tuple(value) if isinstance(value, list) else value)


@attrs.define(kw_only=True)
class Fault:
    """One thing that goes wrong on a route, a number of times.

    Attributes:
        route: a name of `ROUTES`, or `*`.
        times: how many requests it meets; -1 for all.
        status: HTTP status of the false answer; 0 keeps the real one.
        error: JSON `error` code of the false answer; empty for none.
        body: json (from `error`), html, empty, text, array, deep, huge or gzip_bomb.
        text: description in a JSON body, or the whole text body.
        headers: extra headers of the answer.
        commit: the real handler runs first, so the state changes although the answer is false.
        drop: close the connection in place of an answer.
        delay: seconds before the answer.
        drip: seconds between single bytes of the answer.
    """

    route: str = "*"
    times: int = 1
    status: int = 0
    error: str = ""
    body: Literal["json", "html", "empty", "text", "array", "deep", "huge", "gzip_bomb"] = "json"
    text: str = ""
    headers: dict[str, str] = attrs.field(factory=dict)
    commit: bool = False
    drop: bool = False
    delay: float = 0.0
    drip: float = 0.0

    def __attrs_post_init__(self) -> None:
        if self.route != "*" and self.route not in ROUTES:
            raise UsageError(f"The portal has no route {self.route!r}.")

    @property
    def label(self) -> str:
        """Short name for the request log."""
        what = "drop" if self.drop else self.error or (str(self.status) if self.status else "delay")
        return f"{what}{'+commit' if self.commit else ''}"


@attrs.define
class FaultQueue:
    """Planted faults in the order they are met."""

    faults: list[Fault] = attrs.field(factory=list)

    def plant(self, *faults: Fault) -> None:
        """Add faults at the end."""
        self.faults.extend(faults)

    def take(self, route: str) -> Fault | None:
        """The next fault for a request on `route`, used up by one."""
        for fault in self.faults:
            if fault.route in ("*", route) and fault.times != 0:
                fault.times -= 1 if fault.times > 0 else 0
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    def clear(self) -> None:
        """Forget every planted fault."""
        self.faults.clear()
