"""What a failed fetch means, from git's own words (facts/update.md 1.4). Pure; the table is tried in its order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

__all__ = ["FetchFailure", "classify_fetch"]


@attrs.frozen
class FetchFailure:
    """One class of failure.

    Attributes:
        token: closed token.
        message: what happened.
        advice: what to do.
        signs: texts of git (LC_ALL=C) that show it, as regular expressions.
    """

    token: str
    message: str
    advice: str
    signs: tuple[str, ...] = ()


_TABLE: Final = (
    FetchFailure(
        "rate_limited",
        "The remote answers too many requests from here.",
        "Wait a while and try again.",
        (r"\b429\b", "rate.?limit", "too many requests"),
    ),
    FetchFailure(
        "outage",
        "The remote has trouble of its own.",
        "Try again later.",
        (r"returned error: 50[0234]\b", r"HTTP[/ ][\d. ]*50[0234]\b", "bad gateway", "service unavailable"),
    ),
    FetchFailure(
        "missing_repository",
        "There is no repository at the pinned address.",
        "If it moved, install again from the new address.",
        ("does not appear to be a git repository", "repository (.* )?not found", "returned error: 404"),
    ),
    FetchFailure(
        "auth",
        "The remote does not accept the stored credentials.",
        "Renew them.",
        ("authentication failed", "invalid credentials", r"returned error: 40[13]\b", "access denied"),
    ),
    FetchFailure(
        "unreachable",
        "The remote cannot be reached.",
        "Check the network and proxy settings, then try again.",
        (
            "could not resolve", "unable to access", "name or service not known", "network is unreachable",
            "connection (refused|reset|timed out|closed)", "no route to host", "failed to connect", "early EOF",
            "unexpected disconnect", "hung up unexpectedly",
        ),
    ),
    FetchFailure(
        "login_demanded",
        "The remote asks for a login that an open repository does not need: an outage, or it is private now.",
        "Try again later; for a private repository set up a credential helper.",
        ("could not read username", "terminal prompts disabled"),
    ),
    FetchFailure(
        "ssh",
        "The SSH key or host key was not accepted.",
        "Check it with: ssh -T and that host.",
        (r"permission denied \(", "host key verification failed", "no matching host key"),
    ),
    FetchFailure(
        "permission",
        "Files of a repository may not be read or written by this user.",
        "Look who owns them, in the install and in the source: an earlier sudo may have left them.",
        ("permission denied", "insufficient permission"),
    ),
    FetchFailure(
        "missing_ref",
        "The remote has no such branch or tag.",
        "Name another one with --branch, or check the channel.",
        ("couldn't find remote ref", "remote branch .* not found"),
    ),
    FetchFailure(
        "protocol",
        "The remote's address leads to a protocol that is not allowed.",
        "Check url.*.insteadOf in the git configuration.",
        ("transport '.*' not allowed",),
    ),
    FetchFailure(
        "disk_full", "The disk is full.", "Free some space and try again.", ("no space left on device",)
    ),
    FetchFailure(
        "git_locked",
        "Another git process holds a lock in our repository.",
        "Wait until it has finished and try again.",
        ("unable to create .*: file exists", "another git process", "cannot lock ref"),
    ),
    FetchFailure(
        "broken_objects",
        "The remote or the local store holds broken objects.",
        "Try again; if it stays, the remote must be repaired.",
        (
            "fsck error", "hasdotgit", "badtree", "zeropadded", "index-pack (failed|abnormal)", "pack .*(corrupt|bad)",
            "inflate", "object .* is corrupt", "did not send all necessary objects", "bad object",
            "unable to read (tree|sha1)", "missing (blob|tree|commit)", "error in object", "object file .*is empty",
            "header for .*too long", "unable to (stream|unpack|parse) .*(object|header|[0-9a-f]{40})", "garbage at end of loose object",
        ),
    ),
)  # fmt: skip

_NAMES: Final = re.compile(r"'[^'\n]*'|(?<![\w/])refs/\S+|(?<= )/\S+")
"""What git quotes, full refs and paths."""
_OTHER: Final = FetchFailure("other", "The new version could not be fetched.", "Try again.")
_TIMEOUT: Final = FetchFailure(
    "timeout", "The remote did not answer in time.", "Check the network, then try again."
)


def classify_fetch(stderr: str, *, timed_out: bool = False, names: Iterable[str] = ()) -> FetchFailure:
    """The class of a failed fetch.

    Args:
        stderr: git's standard error (LC_ALL=C).
        timed_out: our time limit ended it.
        names: address, host and path of the remote. Whatever has a name (these, what git quotes, refs) says nothing about the failure:
            a repository may be called `rate-limiter`, a branch `fix-429`.
    """
    if timed_out:
        return _TIMEOUT
    for name in sorted(names, key=len, reverse=True):
        if name and not name.isalpha():  # a plain word may be one of git's own
            stderr = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "", stderr)
    stderr = _NAMES.sub("''", stderr)
    for failure in _TABLE:
        if any(re.search(sign, stderr, re.IGNORECASE) for sign in failure.signs):
            return failure
    return _OTHER
