"""URLs from outside: parsed once, judged by exact scheme and host (threats.md 8).

A URL is accepted only in its plain form: https, or http to the machine itself; no user part, no backslash, no control or non-ASCII
character, a real port. What a browser or another library would read differently is refused instead of guessed.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final
from urllib.parse import quote, urlsplit

import attrs

__all__ = ["MAX_URL", "Origin", "is_loopback", "origin_of", "plain_url", "with_query"]

MAX_URL: Final = 2048
"""Longest URL in characters that is looked at."""

_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_HOST: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@attrs.frozen
class Origin:
    """Scheme, host and port of a URL: what a token is bound to.

    Attributes:
        scheme: `https` or `http`.
        host: lower-case host without brackets.
        port: the explicit or default port.
    """

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (
            "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its literal: `localhost`, 127.0.0.0/8 in full dotted form, `::1`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(raw: str) -> str | None:
    """A host in its plain form; None for IP spellings that libraries read differently (0x7f.1, 2130706433, 127.1)."""
    if ":" in raw:
        try:
            return str(ipaddress.IPv6Address(raw))
        except ValueError:
            return None
    if not _HOST.fullmatch(raw):
        return None
    last = raw.rsplit(".", 1)[-1]
    if last.isdigit() or last.startswith("0x"):
        try:
            return str(ipaddress.IPv4Address(raw))
        except ValueError:
            return None
    return raw


def origin_of(url: str) -> Origin | None:
    """The origin of a URL in plain form, None for anything else.

    Args:
        url: text from a config, a store, an answer or the environment.
    """
    return _origin_of(url) if isinstance(url, str) and len(url) <= MAX_URL else None


@functools.lru_cache(maxsize=64)
def _origin_of(url: str) -> Origin | None:
    """Asked several times for each request, always for the same few addresses."""
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme
    if scheme not in _DEFAULT_PORTS or not url.lower().startswith(f"{scheme}://") or "@" in parts.netloc:
        return None
    if parts.netloc.endswith(":") or port == 0:
        return None
    host = _host((parts.hostname or "").lower())
    if host is None or (scheme == "http" and not is_loopback(host)):
        return None
    return Origin(scheme, host, port or _DEFAULT_PORTS[scheme])


def plain_url(url: str) -> str | None:
    """The URL itself when `origin_of` accepts it, else None."""
    return url if origin_of(url) is not None else None


def with_query(url: str, **values: str) -> str:
    """Append query parameters, percent-encoded."""
    joint = "&" if "?" in url else "?"
    return url + joint + "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
