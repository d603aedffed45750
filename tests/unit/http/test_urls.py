"""Addresses from outside: only the plain form is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.urls import is_loopback, origin_of, plain_url, with_query

GOOD = {
    "https://portal.nousresearch.com": "https://portal.nousresearch.com",
    "https://PORTAL.nousresearch.com/x?y=1": "https://portal.nousresearch.com",
    "https://portal.nousresearch.com:443/": "https://portal.nousresearch.com",
    "https://portal.nousresearch.com:8443": "https://portal.nousresearch.com:8443",
    "http://127.0.0.1:8080": "http://127.0.0.1:8080",
    "http://localhost:1": "http://localhost:1",
    "http://[::1]:9/": "http://[::1]:9",
    "https://10.0.0.7": "https://10.0.0.7",
}
BAD = [
    "", " ", "portal.nousresearch.com", "//portal.nousresearch.com", "ftp://portal", "file:///etc/passwd",
    "javascript:alert(1)", "data:text/html,x", "-x", "https:portal", "https:/portal", "https:///x",
    "http://portal.nousresearch.com", "http://10.0.0.1", "http://0.0.0.0", "http://127.1", "http://2130706433",
    "http://0x7f.0.0.1", "http://0177.0.0.1", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
    "https://portal@evil.example", "https://user:pw@portal.nousresearch.com", "https://portal.nousresearch.com\\@evil",
    "https://evil.example\\.portal.nousresearch.com", "https://portal.nousresearch.com:0", "https://portal:",
    "https://portal:99999", "https://portal:8o", "https://pörtal.example", "https://xn--/", "https://-a.example",
    "https://a..b", "https://a b", "https://a\n.b", "https://a\u202e.b", "https://a/\x1b]8;;http://evil\x07",
    "https://[::1", "https://[zz]", "HTTP://evil.example", "https://" + "a" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("url", GOOD)
def test_plain_addresses_have_an_origin(url: str) -> None:
    assert str(origin_of(url)) == GOOD[url]
    assert plain_url(url) == url


@pytest.mark.parametrize("url", BAD)
def test_everything_else_has_none(url: str) -> None:
    assert origin_of(url) is None


@given(st.text(max_size=60))
def test_arbitrary_text_never_raises_and_never_smuggles_a_foreign_host(text: str) -> None:
    origin = origin_of(f"https://portal.nousresearch.com{text}")
    if origin is not None and not text.startswith((".", "-")) and not (text[:1].isalnum()):
        assert origin.host == "portal.nousresearch.com"


def test_loopback_is_by_literal() -> None:
    assert is_loopback("127.9.9.9")
    assert is_loopback("::1")
    assert not is_loopback("127.1")
    assert not is_loopback("localhost.")


def test_query_values_are_encoded() -> None:
    assert with_query("https://a/b", c="x&y=z é") == "https://a/b?c=x%26y%3Dz%20%C3%A9"
    assert with_query("https://a/b?q=1", c="2") == "https://a/b?q=1&c=2"
