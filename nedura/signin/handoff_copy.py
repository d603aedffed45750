"""What people read about a hand-off: result lines and display names. Never a server code, a token or an account's id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from nedura.clock import iso
from nedura.signin.handoff_rules import Record, State

__all__ = ["app_title", "public_view", "result_lines"]

_TITLES: Final = {
    "discord": "Discord",
    "figma": "Figma",
    "github": "GitHub",
    "gmail": "Gmail",
    "googlecalendar": "Google Calendar",
    "googledocs": "Google Docs",
    "googledrive": "Google Drive",
    "jira": "Jira",
    "linear": "Linear",
    "notion": "Notion",
    "outlook": "Outlook",
    "slack": "Slack",
    "stripe_mcp": "Stripe",
    "todoist": "Todoist",
}


def app_title(slug: str) -> str:
    """Display name of a connected app: a fixed title, else its words with capitals; nothing that a chat would turn into a link."""
    known = _TITLES.get(slug.lower())
    if known is not None:
        return known
    words = [word for word in re.split(r"[\W_]+", slug) if word]
    return " ".join(word[:1].upper() + word[1:] for word in words) or "An app"


def _listed(slugs: Sequence[str]) -> str:
    """`A`, `A and B`, `A, B and C`; a long list ends with how many more there are."""
    names = [app_title(slug) for slug in slugs]
    if len(names) > 12:
        names = [*names[:11], f"{len(names) - 11} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def result_lines(record: Record) -> tuple[str, ...]:
    """What happened, in one or two short lines that are safe in any surface; empty when there is nothing to say."""
    match record.state:
        case State.PENDING if record.attempts == 0:
            return ("Moving your connected apps to this account.",)
        case State.PENDING:
            return ("Moving your connected apps takes longer than usual. It is retried on its own.",)
        case State.CLAIMED:
            return _claimed_lines(record)
        case State.GONE if record.probably_moved:
            return (
                "Your connected apps were probably moved to this account. Please check that they are all there.",
            )
        case State.GONE:
            return ("The earlier session no longer exists. If an app is missing, reconnect it.",)
        case State.FAILED:
            return ("Your connected apps could not be moved. Please reconnect them.",)


def _claimed_lines(record: Record) -> tuple[str, ...]:
    if not record.connectors_known:
        return ("Your connected apps should be there. Please check the Connectors page.",)
    lines = []
    if record.moved:
        lines.append(f"These connected apps came along: {_listed(record.moved)}.")
    if record.reconnect:
        lines.append(f"Please reconnect: {_listed(record.reconnect)}.")
    return tuple(lines)


def public_view(record: Record) -> dict[str, Any]:
    """The record as fields for a surface that renders the result itself (facts/signin.md 7.7)."""
    retrying = record.open and record.attempts > 0
    return {
        "id": record.id,
        "state": record.state.value,
        "updated_at": iso(record.updated_at),
        "attempts": record.attempts,
        "retrying": retrying,
        "next_attempt_at": iso(record.next_attempt_at) if record.open else None,
        "moved": [app_title(slug) for slug in record.moved],
        "reconnect": [app_title(slug) for slug in record.reconnect],
        "connectors_known": record.connectors_known,
        "probably_moved": record.probably_moved,
        "lines": list(result_lines(record)),
    }
