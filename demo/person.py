"""The stand-in person: opens the real page, compares the code, picks an account and presses Approve."""

from __future__ import annotations

import urllib.parse
import urllib.request
from html.parser import HTMLParser

from demo.errors import DemoError, hold

__all__ = ["approve"]


class _Form(HTMLParser):
    """Fields of the page's form and the code that it shows in large letters."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.accounts: list[str] = []
        self.buttons: list[str] = []
        self.code = ""
        self._in_code = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.action = found.get("action", "")
        elif tag == "input" and found.get("type") == "hidden":
            self.fields[found["name"]] = found.get("value", "")
        elif tag == "input" and found.get("name") == "account":
            self.accounts.append(found.get("value", ""))
        elif tag == "button" and found.get("name") == "action":
            self.buttons.append(found.get("value", ""))
        self._in_code = found.get("class") == "code"

    def handle_data(self, data: str) -> None:
        if self._in_code:
            self.code += data.strip()


def _open(url: str, form: dict[str, str] | None = None) -> str:
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, data, timeout=15) as answer:
        page: bytes = answer.read()
    return page.decode()


def approve(link: str, code: str, email: str) -> None:
    """Approve a device code on the page behind the link. Blocks; call it in a thread.

    Raises:
        DemoError: the page does not show the code, the account or the button.
    """
    parts = urllib.parse.urlsplit(link)
    hold(parts.hostname == "127.0.0.1", "the link leads to the portal of this demo")
    query = dict(urllib.parse.parse_qsl(parts.query)) or {"user_code": code}
    page = urllib.parse.urlunsplit(parts._replace(query=urllib.parse.urlencode(query)))
    form = _Form()
    form.feed(_open(page))
    hold(form.code == code, f"the page shows the code {code}")
    hold(email in form.accounts and "approve" in form.buttons, f"the page offers to approve as {email}")
    target = urllib.parse.urljoin(page, form.action)
    answer = _open(target, {**form.fields, "account": email, "action": "approve"})
    if "Approved" not in answer:
        raise DemoError("The page did not say that it was approved.")
