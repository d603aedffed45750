"""What a failed fetch means, from git's own words (facts/update.md 1.4). Pure; the table is tried in its order."""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["FetchFailure", "classify_fetch"]


@attrs.frozen(kw_only=True)
class FetchFailure:
    """One class of failure: a closed token, what happened, what to do."""

    token: str
    message: str
    advice: str


_TABLE: Final[tuple[tuple[str, FetchFailure], ...]] = (
    (
        r"(?i)\b429\b|rate.?limit|too many requests",
        FetchFailure(
            token="rate_limited",
            message="The remote answers too many requests from here.",
            advice="Wait a while and try again.",
        ),
    ),
    (
        r"(?i)(error:? |HTTP/?[\d.]* ?|status(?: code)? ?)5(00|02|03|04)\b|The requested URL returned error: 5\d\d|bad gateway|service unavailable",
        FetchFailure(
            token="outage", message="The remote has trouble of its own.", advice="Try again later."
        ),
    ),
    (
        r"(?i)could not resolve|unable to access|name or service not known|network is unreachable|connection (refused|reset|timed out)|no route to host|failed to connect|early EOF|unexpected disconnect",
        FetchFailure(
            token="unreachable",
            message="The remote cannot be reached.",
            advice="Check the network and proxy settings, then try again.",
        ),
    ),
    (
        r"(?i)could not read Username|terminal prompts disabled",
        FetchFailure(
            token="login_demanded",
            message="The remote asks for a login that an open repository does not need: most likely an outage, or it is private now.",
            advice="Try again later; for a private repository set up a credential helper.",
        ),
    ),
    (
        r"(?i)authentication failed|invalid credentials|returned error: 40[13]\b|access denied",
        FetchFailure(
            token="auth", message="The remote does not accept the stored credentials.", advice="Renew them."
        ),
    ),
    (
        r"(?i)permission denied \(|host key verification failed|no matching host key|could not read from remote repository.*publickey",
        FetchFailure(
            token="ssh", message="The SSH key or host key was not accepted.", advice="Check: ssh -T to that host."
        ),
    ),
    (
        r"(?i)couldn't find remote ref|remote branch .* not found",
        FetchFailure(
            token="missing_ref",
            message="The remote has no such branch or tag.",
            advice="Name another one with --branch, or check the channel.",
        ),
    ),
    (
        r"(?i)does not appear to be a git repository|repository .* not found|returned error: 404",
        FetchFailure(
            token="missing_repository",
            message="There is no repository at the pinned address.",
            advice="If it moved, install again from the new address.",
        ),
    ),
    (
        r"(?i)transport '.*' not allowed",
        FetchFailure(
            token="protocol",
            message="The remote's address leads to a protocol that is not allowed.",
            advice="Check url.*.insteadOf in the git configuration.",
        ),
    ),
    (
        r"(?i)no space left on device",
        FetchFailure(token="disk_full", message="The disk is full.", advice="Free some space and try again."),
    ),
    (
        r"(?i)fsck error|missingSpaceBeforeDate|hasDotgit|badTree|zeroPadded|index-pack failed|pack .* (corrupt|bad)|inflate|object .* is corrupt|did not send all necessary objects|bad object|unable to read tree|missing (blob|tree|commit)",
        FetchFailure(
            token="broken_objects",
            message="The remote or the local store holds broken objects.",
            advice="Try again; if it stays, the remote must be repaired.",
        ),
    ),
    (
        r"(?i)unable to create .*\.lock|another git process|cannot lock ref",
        FetchFailure(
            token="git_locked",
            message="Another git process holds a lock in our repository.",
            advice="Wait until it has finished and try again.",
        ),
    ),
)

_OTHER: Final = FetchFailure(
    token="other", message="The new version could not be fetched.", advice="Try again; git's own words are above."
)
_TIMEOUT: Final = FetchFailure(
    token="timeout", message="The remote did not answer in time.", advice="Check the network, then try again."
)


def classify_fetch(stderr: str, *, timed_out: bool = False) -> FetchFailure:
    """The class of a failed fetch.

    Args:
        stderr: git's standard error (LC_ALL=C).
        timed_out: our time limit ended it.
    """
    if timed_out:
        return _TIMEOUT
    for pattern, failure in _TABLE:
        if re.search(pattern, stderr, re.DOTALL):
            return failure
    return _OTHER
