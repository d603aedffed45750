"""The seven states of a sign-in. Each owns its words in two registers, so no surface maps a reason to a string.

`copy` is safe in any chat: no address, no exception text, no terminal verb, none of the banned words (decision 28). `copy_terminal` may
name commands and technical detail. Exactly one terminal state ends a sign-in, always last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias, final

import attrs

from nedura.signin.copy import chat_safe, shown_email, shown_model
from nedura.text import clean, spoken_wait

__all__ = [
    "SIGN_IN_STATES",
    "AlreadySignedIn",
    "Cancelled",
    "Code",
    "Completed",
    "Failed",
    "SignInState",
    "TimedOut",
    "Waiting",
]


def _line(value: object) -> str:
    return clean(value, 300)


def _address(value: object) -> str:
    return clean(value, 2048)


def _lines(value: Iterable[object]) -> tuple[str, ...]:
    return tuple(_line(item) for item in value)


def _detail(value: object) -> str:
    return clean(value, 600)


def _token(value: object) -> str:
    return clean(value, 60)


def _seconds(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else max(0.0, float(value))


@final
@attrs.frozen(kw_only=True)
class Code:
    """Show this link and this code.

    Attributes:
        link: page to open, with the code filled in when the service offers that.
        page: the same page in its short form, to type on another device.
        code: what to enter there.
        expires_in: seconds until both are void.
        interval: seconds between two questions to the service.
        expires_at: the same end as ISO 8601 in UTC.
    """

    kind: ClassVar[str] = "code"
    terminal: ClassVar[bool] = False
    ok: ClassVar[bool] = False
    precondition: ClassVar[bool] = False

    link: str = attrs.field(converter=_address)
    page: str = attrs.field(default="", converter=_address)
    code: str = attrs.field(converter=_line)
    expires_in: float
    interval: float = 5.0
    expires_at: str = attrs.field(default="", converter=_line)

    @property
    def copy(self) -> str:
        """Chat form; link and code are fields, shown apart."""
        return "Use this code only if you asked for it just now, and share it with nobody."

    @property
    def copy_with_wait(self) -> str:
        """`copy` and how long the code is good for."""
        minutes = max(1, math.ceil(self.expires_in / 60))
        unit = "minute" if minutes == 1 else "minutes"
        return f"{self.copy} Waiting for you, up to {minutes} {unit}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form, the same words."""
        return self.copy_with_wait


@final
@attrs.frozen(kw_only=True)
class Waiting:
    """The user is at the page.

    Attributes:
        trouble: the service does not answer as it should; the wait goes on.
    """

    kind: ClassVar[str] = "waiting"
    terminal: ClassVar[bool] = False
    ok: ClassVar[bool] = False
    precondition: ClassVar[bool] = False

    trouble: bool = False

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.trouble:
            return "The sign-in service is slow to answer. Still waiting."
        return "Waiting for the sign-in."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        if self.trouble:
            return "The sign-in service is slow to answer. Still waiting, nothing is lost."
        return "Waiting for the sign-in in the browser. Ctrl-C cancels."


@final
@attrs.frozen(kw_only=True)
class Completed:
    """The account is saved.

    Attributes:
        email: the account's address as its token says; may be empty.
        model: the default model now in the config; empty when none is set.
        model_changed: whether this sign-in changed that config.
        handoff: lines on what became of the apps connected before.
        handoff_status: the latest hand-off as fields; None when there was none.
        shared: whether the other profiles of this home can use the account too.
    """

    kind: ClassVar[str] = "completed"
    terminal: ClassVar[bool] = True
    ok: ClassVar[bool] = True
    precondition: ClassVar[bool] = False

    email: str = attrs.field(default="", converter=_line)
    model: str = attrs.field(default="", converter=_line)
    model_changed: bool = False
    handoff: tuple[str, ...] = attrs.field(default=(), converter=_lines)
    handoff_status: Mapping[str, Any] | None = None
    shared: bool = True

    def _say(self, choose: str, other_profiles: str) -> str:
        email = shown_email(self.email)
        lines = [f"Signed in as {email}." if email else "Signed in."]
        if self.model_changed:
            model = shown_model(self.model)
            if model:
                lines.append(f"The default model is now {model}.")
            else:
                lines.append(
                    "The default model has changed."
                    if self.model
                    else f"No default model is set yet. {choose}"
                )
        if not self.shared:
            lines.append(other_profiles)
        return "\n".join([*lines, *filter(None, map(chat_safe, self.handoff))])

    @property
    def copy(self) -> str:
        """Chat form."""
        return self._say("Choose one with /model.", "Other profiles may need their own sign-in.")

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return self._say(
            "Choose one with: nedura model",
            "The shared store could not be written: other profiles may need their own sign-in.",
        )


@final
@attrs.frozen(kw_only=True)
class Cancelled:
    """Somebody stopped it; nothing was saved.

    Attributes:
        replaced: a newer sign-in took its place.
    """

    kind: ClassVar[str] = "cancelled"
    terminal: ClassVar[bool] = True
    ok: ClassVar[bool] = False
    precondition: ClassVar[bool] = False

    replaced: bool = False

    @property
    def copy(self) -> str:
        """Chat form."""
        if self.replaced:
            return "This sign-in was replaced by a newer one. Nothing was saved."
        return "The sign-in was cancelled. Nothing was saved."

    @property
    def copy_terminal(self) -> str:
        """Terminal form, the same words."""
        return self.copy


@final
@attrs.frozen(kw_only=True)
class TimedOut:
    """The code expired before anybody approved it.

    Attributes:
        detail: what probably happened and what to do, for surfaces with room.
    """

    kind: ClassVar[str] = "timed_out"
    terminal: ClassVar[bool] = True
    ok: ClassVar[bool] = False
    precondition: ClassVar[bool] = False

    detail: str = attrs.field(default="", converter=_detail)

    @property
    def copy(self) -> str:
        """Chat form."""
        return "The sign-in link has expired, and nothing was saved. Start again when you are ready."

    @property
    def copy_terminal(self) -> str:
        """Terminal form with the detail."""
        return f"{self.copy}\n{self.detail}" if self.detail else self.copy


_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "access_denied": "The sign-in was declined in the browser. Nothing was saved.",
        "invalid_grant": "The sign-in service does not know this code any more. Start again for a new one.",
        "invalid_client": "The sign-in service does not accept this app. An update may help.",
        "malformed": "The sign-in service gave an answer that cannot be used. Nothing was saved.",
        "untrusted_server": "The connection to the sign-in service is not secure. Nothing was saved.",
        "not_usable": "The account cannot be used here yet. Nothing was saved.",
        "other_account": "Another account was used in the browser than the one that is signed in here. Nothing was changed.",
        "subscription_required": "This account needs a subscription first. Nothing was saved.",
        "anon_unreachable": "The sign-in service could not be reached. Check the network and try again.",
        "anon_server_error": "The sign-in service had a problem. Try again soon.",
        "anon_gate_closed": "The free tier is not available here. Signing in with an account works.",
        "anon_account_locked": "This free access is locked. Sign in with an account to go on.",
        "anon_signin_required": "Signing in with an account is needed to go on.",
        "anon_challenge_required": "The service wants a check in the browser first. Sign in with an account to skip it.",
        "anon_pow_required": "Signing in with an account is needed to go on.",
        "anon_credential_dead": "This free access has ended. Sign in with an account to go on.",
    }
)
_BUSY: Final = frozenset({"anon_rate_limited", "anon_gate_paused"})
_RETRYABLE: Final = _BUSY | {"anon_unreachable", "anon_server_error"}


@final
@attrs.frozen(kw_only=True)
class Failed:
    """It did not work.

    Attributes:
        reason: closed token, empty for a local problem that has no name of its own.
        detail: technical cause, for terminals and logs only.
        retry_after: seconds after which another try makes sense.
        saved: the account was saved before the failure: only what follows the save did not finish.
    """

    kind: ClassVar[str] = "failed"
    terminal: ClassVar[bool] = True
    ok: ClassVar[bool] = False
    precondition: ClassVar[bool] = False

    reason: str = attrs.field(default="", converter=_token)
    detail: str = attrs.field(default="", converter=_detail)
    retry_after: float | None = attrs.field(default=None, converter=_seconds)
    retryable: bool = attrs.field()
    saved: bool = False

    @retryable.default
    def _retryable(self) -> bool:
        return self.reason in _RETRYABLE

    @property
    def copy(self) -> str:
        """Chat form: by reason, never the detail."""
        if self.saved:
            return "You are signed in, but the last step did not finish. Check the default model with /model."
        if self.reason in _BUSY:
            wait = "a few minutes" if self.retry_after is None else spoken_wait(self.retry_after)
            return f"The sign-in service is busy. Try again in {wait}."
        return _REASONS.get(self.reason, "The sign-in did not finish, and nothing was saved. Try again.")

    @property
    def copy_terminal(self) -> str:
        """Terminal form: by reason, with the detail."""
        if self.saved:
            head = "You are signed in, but the last step did not finish. Check the default model with: nedura model"
        elif self.reason in _REASONS or self.reason in _BUSY:
            head = self.copy
        else:
            head = f"Sign-in failed: {self.detail or self.reason or 'unknown cause'}"
            return head if head.endswith(".") else head + "."
        return f"{head}\n{self.detail}" if self.detail else head


@final
@attrs.frozen(kw_only=True)
class AlreadySignedIn:
    """There is an account already: found before anything was asked of the service, or saved by another sign-in that came first.

    Attributes:
        email: its address as its token says; may be empty.
    """

    kind: ClassVar[str] = "already_signed_in"
    terminal: ClassVar[bool] = True
    ok: ClassVar[bool] = True
    precondition: ClassVar[bool] = True

    email: str = attrs.field(default="", converter=_line)

    @property
    def copy(self) -> str:
        """Chat form."""
        email = shown_email(self.email)
        return f"Already signed in as {email}." if email else "Already signed in."

    @property
    def copy_terminal(self) -> str:
        """Terminal form with the way to another account."""
        return f"{self.copy} Another account: nedura auth add nous"


SignInState: TypeAlias = Code | Waiting | Completed | Cancelled | TimedOut | Failed | AlreadySignedIn
"""Whatever `run_sign_in` yields."""

SIGN_IN_STATES: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {state.kind: state for state in (Code, Waiting, Completed, Cancelled, TimedOut, Failed, AlreadySignedIn)}
)
"""Kind -> class, for reading a wire form back."""
