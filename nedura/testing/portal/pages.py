"""The pages a person sees: approve or decline a device code, pick an account, pass the browser check."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from nedura.testing.portal.exchange import Answer, html

if TYPE_CHECKING:
    from nedura.testing.portal.core import Portal
    from nedura.testing.portal.exchange import Ask
    from nedura.testing.portal.state import DeviceGrant

__all__ = ["check", "decide", "device", "pass_check", "plans"]

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 26rem; margin: 12vh auto; padding: 0 1.5rem; }
h1 { font-size: 1.25rem; } .code { font: 600 2rem/1.6 ui-monospace, monospace; letter-spacing: .12em; }
fieldset { border: 1px solid #8886; border-radius: .5rem; margin: 1rem 0; padding: .5rem 1rem; }
label { display: block; padding: .35rem 0; } input[name=user_code] { font: inherit; padding: .4rem; }
button { font: inherit; padding: .55rem 1.2rem; border-radius: .5rem; border: 1px solid #8886; cursor: pointer; }
button.yes { background: #1f6f54; border-color: #1f6f54; color: #fff; } .note { opacity: .75; font-size: .9rem; }
"""


def _page(title: str, body: str, status: int = 200) -> Answer:
    return html(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}"
        '<p class="note">Development portal on this machine. No real account is involved.</p></body></html>',
        status,
    )


def device(portal: Portal, ask: Ask) -> Answer:
    """The page behind the link: the code to compare, the account picker, two buttons."""
    typed = ask.query.get("user_code", "")
    if not typed:
        return _page("Sign in a device", _code_form())
    grant = portal.store.grant_for(typed)
    if grant is None or grant.status == "redeemed" or portal.now() >= grant.expires:
        return _page(
            "This code is not known",
            f"<p>It may have expired. Start again on your device.</p>{_code_form()}",
            404,
        )
    if grant.status != "pending":
        return _page("Already answered", f"<p>This code was {escape(grant.status)}.</p>", 409)
    return _page("Sign in a device", _decision_form(portal, grant))


def _code_form() -> str:
    return (
        '<form method="get" action="/device"><label>Code shown on your device '
        '<input name="user_code" autocomplete="off" autofocus required></label><button class="yes">Go on</button></form>'
    )


def _decision_form(portal: Portal, grant: DeviceGrant) -> str:
    accounts = "".join(
        f'<label><input type="radio" name="account" value="{escape(account.email)}"{" checked" if number == 0 else ""}> '
        f"{escape(account.email)} <span class=note>({account.tier})</span></label>"
        for number, account in enumerate(portal.store.accounts.values())
    )
    return (
        f'<p>Go on only if you started this yourself and your device shows this code:</p><p class="code">{escape(grant.user_code)}</p>'
        f"<p>Application: <strong>{escape(grant.client_id)}</strong>, asks for: {escape(grant.scope or 'nothing special')}</p>"
        f'<form method="post" action="/device"><input type="hidden" name="user_code" value="{escape(grant.user_code)}">'
        f"<fieldset><legend>Account</legend>{accounts}</fieldset>"
        '<button class="yes" name="action" value="approve">Approve</button> '
        '<button name="action" value="decline">Decline</button></form>'
    )


def _foreign(ask: Ask) -> bool:
    """Whether another site's page sent this form."""
    origin = ask.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != ask.headers.get("host")


def decide(portal: Portal, ask: Ask) -> Answer:
    """The person's answer."""
    form = ask.form
    if _foreign(ask):
        return _page("Refused", "<p>This form was sent by another site.</p>", 403)
    email = form.get("account", "")
    approve = form.get("action") == "approve"
    if form.get("action") not in ("approve", "decline") or (approve and email not in portal.store.accounts):
        return _page("That did not work", "<p>Choose an account and a button.</p>", 400)
    try:
        if approve:
            portal.approve(form.get("user_code", ""), email)
        else:
            portal.decline(form.get("user_code", ""))
    except LookupError:
        return _page("This code is not known", "<p>It may have expired or been answered already.</p>", 404)
    if approve:
        return _page(
            "Approved",
            f"<p>Signed in as {escape(email)}. You can close this page and go back to your device.</p>",
        )
    return _page("Declined", "<p>Nothing was signed in. You can close this page.</p>")


def plans(portal: Portal, ask: Ask) -> Answer:
    """A plan page in place of the approval page, as seen in the field (#47950)."""
    return _page("Choose your plan", "<p>This page does not know about your device.</p>")


def check(portal: Portal, ask: Ask) -> Answer:
    """The browser check of the free tier."""
    user = ask.query.get("user", "")
    return _page(
        "A short check",
        f'<form method="post" action="/check"><input type="hidden" name="user" value="{escape(user)}">'
        '<button class="yes">I am a person</button></form>',
    )


def pass_check(portal: Portal, ask: Ask) -> Answer:
    """Mark the check passed."""
    guest = next((g for g in portal.store.guests if g.user_id == ask.form.get("user")), None)
    if _foreign(ask) or guest is None:
        return _page("That did not work", "<p>Start again on your device.</p>", 400)
    guest.challenge_passed = True
    return _page("Thank you", "<p>You can close this page.</p>")
