"""A person at the pages of an authorization server: follows its own forms with a cookie jar, no browser."""

from __future__ import annotations

import html
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx

_FORM = re.compile(r'<form[^>]*\baction="([^"]+)"[^>]*>(.*?)</form>', re.S)
_INPUT = re.compile(r"<input[^>]*>", re.S)


def _attribute(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return html.unescape(found.group(1)) if found else ""


def _forms(page: httpx.Response) -> Iterator[tuple[str, dict[str, str]]]:
    for action, body in _FORM.findall(page.text):
        fields = {_attribute(tag, "name"): _attribute(tag, "value") for tag in _INPUT.findall(body)}
        fields.pop("", None)
        yield urljoin(str(page.url), html.unescape(action)), fields


def decide(link: str, *, login: str = "alice", abort: bool = False, ca: Path | None = None) -> str:
    """Open the link, confirm the code, log in and consent; or abort. Returns the last page."""
    trust = ssl.create_default_context(cafile=str(ca)) if ca else True
    with httpx.Client(follow_redirects=True, verify=trust, trust_env=False, timeout=20) as browser:
        page = browser.get(link)
        for _ in range(10):
            if "Sign-in Success" in page.text or "interrupted" in page.text:
                return page.text
            forms = list(_forms(page))
            if not forms:
                return page.text
            url, fields = forms[0]
            if abort and "confirm" in fields:
                fields["abort"] = "yes"
            if fields.get("prompt") == "login":
                fields |= {"login": login, "password": "x"}
            page = browser.post(url, data=fields)
    raise AssertionError("too many pages")
