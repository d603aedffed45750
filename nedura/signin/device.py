"""The device login of RFC 8628 without IO: what an answer means, how long to wait, when to stop.

`poll` is a generator: it yields `Wait` and `Ask` and is sent `Woke` and `Reply` or `Lost`; what it returns ends the login. The driver
only sleeps and sends. Times are monotonic seconds that the driver names; this module knows no clock.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from nedura.codes import server_code
from nedura.errors import PortalError
from nedura.signin.tokens import finite, is_plain
from nedura.text import Secret
from nedura.urls import MAX_URL, Origin, origin_of

__all__ = [
    "DEVICE_GRANT_TYPE",
    "TRANSITIONS",
    "Ask",
    "DeviceCode",
    "Ended",
    "Granted",
    "Lost",
    "Outcome",
    "Reply",
    "Step",
    "Verdict",
    "Wait",
    "Woke",
    "device_code",
    "judge",
    "poll",
]

DEVICE_GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:device_code"
DEFAULT_INTERVAL: Final = 5.0  # RFC 8628 3.2: no interval in the answer means 5 s
DEFAULT_LIFE: Final = 600.0
LONGEST_LIFE: Final = 3600.0
MARGIN: Final = 1.2  # a poll that comes milliseconds early costs a slow_down on a strict server (crush#3399)
SLOW_DOWN: Final = 5.0  # RFC 8628 3.5: "for this and all subsequent requests"
LONGEST_BACKOFF: Final = 60.0
SENSELESS_LIMIT: Final = 3
LEAD: Final = 1.0  # the last poll leaves so long before the end of a long-lived code, so that its answer can still be a token
LEAD_FROM: Final = 120.0

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")


@attrs.frozen(kw_only=True)
class DeviceCode:
    """A device answer, checked.

    Attributes:
        device_code: what the client polls with.
        user_code: what the user types.
        link: page to open.
        link_complete: page with the code filled in; None when the server names none.
        expires_in: life in seconds, 1 to 3600.
        interval: seconds between polls, at least 1.
    """

    device_code: Secret
    user_code: str
    link: str
    link_complete: str | None = None
    expires_in: float = DEFAULT_LIFE
    interval: float = DEFAULT_INTERVAL


def _number(value: object, default: float) -> float:
    number = finite(value)
    return default if number is None else number


def _malformed(what: str) -> PortalError:
    return PortalError(f"The sign-in service sent {what}.", error="malformed")


def _link(value: object, portal: Origin) -> str:
    """A page to open: the portal's own host, https (or this machine's http), printable, short (threats.md 8)."""
    origin = origin_of(value) if isinstance(value, str) and len(value) <= MAX_URL else None
    if origin is None or origin.host != portal.host or (origin.scheme == "http" != portal.scheme):
        raise _malformed("a link that cannot be trusted")
    return str(value)


def device_code(fields: Mapping[str, Any], portal: Origin) -> DeviceCode:
    """Read a device answer. `interval` and the complete link are optional (RFC 8628 3.2).

    Args:
        fields: the answer's JSON object.
        portal: origin that was asked.

    Raises:
        PortalError: a field is missing, or a link leads elsewhere.
    """
    code, user = fields.get("device_code"), fields.get("user_code")
    if not isinstance(code, str) or not _TOKEN.fullmatch(code):
        raise _malformed("no device code")
    if not isinstance(user, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 -]{2,38}[A-Za-z0-9]", user):
        raise _malformed("no code to show")
    complete = fields.get("verification_uri_complete")
    life = min(max(1.0, _number(fields.get("expires_in"), DEFAULT_LIFE)), LONGEST_LIFE)
    interval = _number(fields.get("interval"), DEFAULT_INTERVAL)
    interval = DEFAULT_INTERVAL if interval < 0 else min(max(1.0, interval), life)
    return DeviceCode(
        device_code=Secret(code),
        user_code=user,
        link=_link(fields.get("verification_uri", fields.get("verification_url")), portal),
        link_complete=None if complete in (None, "") else _link(complete, portal),
        expires_in=life,
        interval=interval,
    )


class Verdict(Enum):
    """What one answer of the token endpoint means."""

    GRANTED = "granted"
    PENDING = "pending"
    SLOW_DOWN = "slow_down"
    BLIP = "blip"
    EXPIRED = "expired"
    DENIED = "denied"
    UNKNOWN_CODE = "unknown_code"
    REFUSED = "refused"
    SENSELESS = "senseless"
    MALFORMED = "malformed"


class Step(Enum):
    """What the poller does about it."""

    FINISH = "finish"
    AGAIN = "again"
    SLOWER = "slower"
    BACK_OFF = "back_off"
    BACK_OFF_THRICE = "back_off_thrice"
    TIME_OUT = "time_out"
    FAIL = "fail"
    FAIL_OR_TIME_OUT = "fail_or_time_out"


TRANSITIONS: Final[Mapping[Verdict, Step]] = MappingProxyType(
    {
        Verdict.GRANTED: Step.FINISH,
        Verdict.PENDING: Step.AGAIN,
        Verdict.SLOW_DOWN: Step.SLOWER,
        Verdict.BLIP: Step.BACK_OFF,  # decision 6: never ends a login
        Verdict.SENSELESS: Step.BACK_OFF_THRICE,  # a page of something in between; a server that stays so is told
        Verdict.EXPIRED: Step.TIME_OUT,
        Verdict.DENIED: Step.FAIL,
        Verdict.UNKNOWN_CODE: Step.FAIL_OR_TIME_OUT,  # an evicted code after its deadline, a refusal before (decision 7)
        Verdict.REFUSED: Step.FAIL,  # RFC 8628 3.5: any other error code ends it
        Verdict.MALFORMED: Step.FAIL,
    }
)
"""Verdict -> step. The last poll at the deadline times out on everything that would go on."""

_CODES: Final[Mapping[str, Verdict]] = MappingProxyType(
    {
        "authorization_pending": Verdict.PENDING,
        "slow_down": Verdict.SLOW_DOWN,
        "expired_token": Verdict.EXPIRED,
        "code_expired": Verdict.EXPIRED,
        "expired_code": Verdict.EXPIRED,
        "device_code_expired": Verdict.EXPIRED,
        "token_expired": Verdict.EXPIRED,
        "access_denied": Verdict.DENIED,
        "authorization_declined": Verdict.DENIED,
        "invalid_grant": Verdict.UNKNOWN_CODE,
        "bad_verification_code": Verdict.UNKNOWN_CODE,
        "temporarily_unavailable": Verdict.BLIP,
        "server_error": Verdict.BLIP,
    }
)
"""Error code of an answer -> verdict; every other code refuses."""


@attrs.frozen(kw_only=True)
class Reply:
    """An answer of the token endpoint.

    Attributes:
        now: when its last byte was there.
        status: HTTP status.
        fields: its JSON object, None when the body was something else.
        retry_after: seconds it asks to wait.
        mitigated: a firewall in front answered in the portal's place (header `x-vercel-mitigated`).
    """

    now: float
    status: int
    fields: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    retry_after: float | None = None
    mitigated: bool = False


@attrs.frozen(kw_only=True)
class Lost:
    """A request without an answer: name, connection, time.

    Attributes:
        now: when that was known.
    """

    now: float


@attrs.frozen(kw_only=True)
class Woke:
    """The end of a wait.

    Attributes:
        now: the time it is.
        suspended: the machine slept meanwhile (the wall clock ran ahead), so the deadline may have passed unnoticed.
    """

    now: float
    suspended: bool = False


@attrs.frozen(kw_only=True)
class Wait:
    """Sleep until a moment.

    Attributes:
        until: monotonic seconds.
        trouble: the service did not answer as it should the last time; cleared by the next good answer.
    """

    until: float
    trouble: bool = False


@attrs.frozen(kw_only=True)
class Ask:
    """Send one token request now.

    Attributes:
        last: nothing follows but the end.
    """

    last: bool = False


@attrs.frozen(kw_only=True)
class Granted:
    """The login was approved.

    Attributes:
        fields: the token answer.
    """

    fields: Mapping[str, Any] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Ended:
    """The login ended without a token.

    Attributes:
        reason: `timed_out`, `access_denied`, `malformed`, or the server's own error code.
        status: HTTP status of the last answer, 0 when there was none.
        answered: whether the service ever answered a poll.
    """

    reason: str
    status: int = 0
    answered: bool = True


Outcome: TypeAlias = Granted | Ended


def judge(reply: Reply | Lost) -> Verdict:
    """What an answer means. 429 and 5xx are blips whatever their body says; a firewall's 403 is one too (#12275, #87432)."""
    if isinstance(reply, Lost):
        return Verdict.BLIP
    fields, status = reply.fields, reply.status
    code = fields.get("error") if fields is not None else None
    if status in (408, 425, 429) or status >= 500 or (status == 403 and reply.mitigated):
        return Verdict.SLOW_DOWN if code == "slow_down" else Verdict.BLIP
    if isinstance(code, str) and code:
        return _CODES.get(code.strip().lower(), Verdict.REFUSED)
    if 200 <= status < 300:
        token = (fields or {}).get("access_token")
        if token is None:
            return Verdict.SENSELESS
        refresh = (fields or {}).get("refresh_token")
        usable = is_plain(token) and (refresh in (None, "") or is_plain(refresh))
        return Verdict.GRANTED if usable else Verdict.MALFORMED
    return Verdict.MALFORMED


@attrs.define(kw_only=True)
class Pace:
    """How far apart two polls are.

    Attributes:
        interval: the server's interval, a ratchet that only grows.
        blips: troubles in a row.
        senseless: successes without sense in a row.
    """

    interval: float
    blips: int = 0
    senseless: int = 0

    @property
    def gap(self) -> float:
        """Seconds from an answer to the next request."""
        gap = self.interval * MARGIN
        if not self.blips:
            return gap
        return max(gap, min(LONGEST_BACKOFF, gap * 2.0 ** min(self.blips, 10)))

    def slower(self, reply: Reply | Lost) -> None:
        """Obey a slow_down: five seconds more for good, or the server's own larger interval."""
        named = _number((reply.fields or {}).get("interval"), 0.0) if isinstance(reply, Reply) else 0.0
        self.interval = max(self.interval + SLOW_DOWN, min(named, LONGEST_LIFE))

    def wait(self, reply: Reply | Lost, verdict: Verdict) -> float:
        """Seconds to wait after an answer; Retry-After is obeyed, and takes the place of doubling."""
        asked = reply.retry_after if isinstance(reply, Reply) else None
        trouble = verdict in (Verdict.BLIP, Verdict.SENSELESS)
        self.blips = self.blips + 1 if trouble else 0
        if asked is not None:
            return max(asked, self.interval * MARGIN)
        return self.gap


def poll(code: DeviceCode, start: float) -> Generator[Wait | Ask, Woke | Reply | Lost, Outcome]:
    """Poll the token endpoint until something ends it.

    Args:
        code: the device answer.
        start: when that answer was there.
    """
    pace = Pace(interval=code.interval)
    deadline = start + code.expires_in
    final = deadline - (LEAD if code.expires_in >= LEAD_FROM else 0.0)
    due, answered, trouble, slept = (
        start + pace.gap,
        False,
        False,
        False,
    )  # RFC 8628 3.5: the first poll waits too
    earliest = start + pace.interval
    while True:
        last = due >= final
        woke = yield Wait(until=min(max(final, earliest), deadline) if last else due, trouble=trouble)
        assert isinstance(woke, Woke)
        slept = slept or woke.suspended
        last = last or woke.now >= final
        reply = yield Ask(last=last)
        assert isinstance(reply, Reply | Lost)
        answered = answered or isinstance(reply, Reply)
        verdict = judge(reply)
        trouble = verdict in (Verdict.BLIP, Verdict.SENSELESS)
        pace.senseless = pace.senseless + 1 if verdict is Verdict.SENSELESS else 0
        if pace.senseless >= SENSELESS_LIMIT:
            verdict = Verdict.MALFORMED
        outcome = _outcome(reply, verdict, over=last or reply.now >= deadline, slept=slept, answered=answered)
        if outcome is not None:
            return outcome
        if verdict is Verdict.SLOW_DOWN:
            pace.slower(reply)
        due = reply.now + pace.wait(reply, verdict)
        earliest = reply.now + pace.interval


def _outcome(
    reply: Reply | Lost, verdict: Verdict, *, over: bool, slept: bool, answered: bool
) -> Outcome | None:
    """What ends the login now; None goes on."""
    status = reply.status if isinstance(reply, Reply) else 0
    timed_out = Ended(reason="timed_out", status=status, answered=answered)
    match TRANSITIONS[verdict]:
        case Step.FINISH:
            assert isinstance(reply, Reply)
            return Granted(fields=reply.fields or {})
        case Step.AGAIN | Step.SLOWER | Step.BACK_OFF | Step.BACK_OFF_THRICE:
            return timed_out if over else None
        case Step.TIME_OUT:
            return timed_out
        case Step.FAIL_OR_TIME_OUT if over or slept:
            return timed_out
        case _:
            return Ended(reason=_reason(reply, verdict), status=status)


def _reason(reply: Reply | Lost, verdict: Verdict) -> str:
    if verdict is Verdict.DENIED:
        return "access_denied"
    if verdict is Verdict.MALFORMED or not isinstance(reply, Reply) or reply.fields is None:
        return "malformed"
    return server_code(reply.fields.get("error"))
