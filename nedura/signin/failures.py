"""Which `Failed` an error is. Only what the service did is blamed on the service (facts/signin.md 3.3)."""

from __future__ import annotations

import logging
from typing import Final

from nedura.codes import server_code
from nedura.errors import NeduraError, PortalError, Unreachable, UntrustedServer
from nedura.signin.device import Ended
from nedura.signin.states import Failed, TimedOut
from nedura.text import clean, redact, spoken_wait

__all__ = ["failure_of", "state_of_end"]

LONGEST_WAIT: Final = 86400.0
"""Longest wait that is told to a person, whatever a server asks for."""

log = logging.getLogger("nedura.signin")

_NAMED = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "malformed",
        "not_usable",
        "other_account",
        "subscription_required",
    }
)
_SENSELESS = frozenset({"malformed", "redirect", "too_large"})


def failure_of(error: Exception, *, saved: bool = False) -> Failed:
    """The state of an error. Its cause goes to the log and to terminals, redacted; a chat sees the reason's words alone.

    Args:
        error: anything that was raised.
        saved: the account is already on disk.
    """
    detail = redact(clean(_cause(error), 400))
    log.warning("sign-in failed: %s", detail)
    if saved:
        return Failed(detail=detail, saved=True)
    match error:
        case UntrustedServer():
            return Failed(reason="untrusted_server", detail=detail)
        case Unreachable():
            return Failed(reason="anon_unreachable", detail=detail)
        case PortalError():
            asked = None if error.retry_after is None else min(error.retry_after, LONGEST_WAIT)
            return Failed(reason=_portal_reason(error), detail=detail, retry_after=asked)
        case _:
            return Failed(detail=detail)


def _cause(error: Exception) -> str:
    if isinstance(error, Unreachable) and not isinstance(error, UntrustedServer):
        return error.message  # the state's own words already say what to do
    return error.diagnostics() if isinstance(error, NeduraError) else f"{type(error).__name__}: {error}"


def _portal_reason(error: PortalError) -> str:
    if error.status == 429:
        return "anon_rate_limited"
    if error.status == 503:
        return "anon_gate_paused"
    if error.status >= 500:
        return "anon_server_error"
    if error.error in _SENSELESS or not error.error:
        return "malformed"
    return error.error if error.error in _NAMED or error.error.startswith("anon_") else ""


def state_of_end(end: Ended, *, lifetime: float, command: str) -> Failed | TimedOut:
    """The state of a login that ended without a token.

    Args:
        end: how it ended.
        lifetime: life of the code in seconds.
        command: what a person runs to start again.
    """
    if end.reason != "timed_out":
        said = server_code(end.reason)
        log.warning("sign-in ended: %s (HTTP %d)", said, end.status)
        return Failed(
            reason=end.reason if end.reason in _NAMED else "",
            detail=f"The service answered {said} (HTTP {end.status}).",
        )
    if not end.answered:
        return TimedOut(
            detail=f"The service gave no answer in all the time. Check the network, then run: {command}"
        )
    return TimedOut(
        detail=f"No approval came in {spoken_wait(lifetime)}. If the page asked for a login, a plan or a CAPTCHA, finish that"
        f" in the browser first. Then run: {command}"
    )
