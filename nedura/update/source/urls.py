"""Which addresses an update may be fetched from: parsed once, to one protocol (threats.md 1). Pure."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import attrs

from nedura.errors import RefusedError
from nedura.text import clean

__all__ = ["Remote", "parse_remote", "upstream_of"]

Protocol = Literal["https", "ssh", "file"]

_SCP: Final = re.compile(
    r"^(?:(?P<user>[A-Za-z0-9_][\w.-]*)@)?(?P<host>[A-Za-z0-9][\w.-]*):(?P<path>[^:].*)\Z"
)
_HOST: Final = re.compile(r"^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])\Z")
_USER: Final = re.compile(r"^[A-Za-z0-9_][\w.-]*\Z")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f\\]")


@attrs.frozen(kw_only=True)
class Remote:
    """A remote that git may be given.

    Attributes:
        url: the address for git; may hold a credential, so it is never shown.
        protocol: the one protocol that git is allowed to use.
        shown: the address without user information.
        host: host name, empty for a local path.
        path: path on the host, without leading slash and `.git`.
    """

    url: str = attrs.field(repr=False)
    protocol: Protocol
    shown: str
    host: str = ""
    path: str = ""

    def same_place(self, other: Remote) -> bool:
        """Whether two addresses name one repository: host and path agree, whatever the protocol or credential."""
        return (self.host.lower(), self.path) == (other.host.lower(), other.path)


def _refuse(url: str, why: str) -> RefusedError:
    return RefusedError(
        f"The remote {clean(_without_secrets(url), 120)} cannot be used: {why}.",
        advice="Use an https:// or ssh:// address.",
    )


def _without_secrets(url: str) -> str:
    """A refused address as it may be shown: nothing in front of its last `@` and nothing behind a `?` or `#`, however it is spelt."""
    before, at, rest = url.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    shown = f"{scheme}{slashes}{rest}" if slashes else rest
    return re.split(r"[?#]", shown if at else url, maxsplit=1)[0]


def _tidy(path: str) -> str:
    return path.strip("/").removesuffix(".git").rstrip("/")


def parse_remote(url: str, *, local: bool = True) -> Remote:
    """Parse a remote's address to https, ssh or (when `local`) an absolute local path.

    Args:
        url: as written in a configuration or on a command line.
        local: whether a path is allowed: only where it was recorded at install.

    Raises:
        RefusedError: another protocol, or a part that a helper program could take for an option.
    """
    if not url or len(url) > 2048:
        raise _refuse(url, "it is empty or too long")
    if url.startswith("/"):
        return _local(url, url, local)
    if _CONTROL.search(
        url.replace(" ", "") if url.startswith("file:///") else url
    ):  # a folder may have blanks
        raise _refuse(url, "it holds blanks, backslashes or control characters")
    if "::" in url.split("/", 1)[0]:
        raise _refuse(url, "it names a helper program")
    if "://" not in url:
        return _scp(url)
    return _with_scheme(url, local)


def _local(url: str, path: str, local: bool) -> Remote:
    if not local:
        raise _refuse(url, "a local path is only used when it was recorded at install")
    if any(ord(ch) < 0x20 or ord(ch) == 0x7F for ch in path) or "/../" in f"{path}/":
        raise _refuse(url, "its path is not plain")
    return Remote(url=path, protocol="file", shown=clean(path), path=_tidy(path))


def _scp(url: str) -> Remote:
    found = _SCP.match(url)
    if (
        found is None
        or found["path"].startswith("-")
        or (not found["user"] and "@" in found["path"].split("/")[0])
    ):
        raise _refuse(url, "it is no address of a repository")
    shown = f"{found['host']}:{found['path']}"
    return Remote(url=url, protocol="ssh", shown=clean(shown), host=found["host"], path=_tidy(found["path"]))


def _with_scheme(url: str, local: bool) -> Remote:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refuse(url, "it is malformed") from error
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise _refuse(url, "it names a host for a local path")
        return _local(url, unquote(parts.path), local)
    if parts.scheme not in ("https", "ssh"):
        raise _refuse(url, f"{clean(parts.scheme, 20)} is not allowed")
    host = parts.netloc.rpartition("@")[2]
    host = host if port is None else host.removesuffix(f":{port}")
    if not _HOST.match(host) or parts.path.lstrip("/").startswith("-") or not _tidy(parts.path):
        raise _refuse(url, "its host or path is not plain")
    if parts.username is not None and not _USER.match(unquote(parts.username)):
        raise _refuse(url, "its user name is not plain")
    if parts.query or parts.fragment:
        raise _refuse(url, "it has a query or fragment")
    protocol: Protocol = "https" if parts.scheme == "https" else "ssh"
    shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
    # git knows its protocols by small letters alone
    return Remote(
        url=parts.scheme + url[len(parts.scheme) :],
        protocol=protocol,
        shown=clean(shown),
        host=host,
        path=_tidy(parts.path),
    )


def upstream_of(remote: Remote, url: str) -> Remote | None:
    """What a remote is a fork of: the checkout's `upstream`, when that is another place. None when it is no fork, or cannot be used.

    Args:
        remote: where updates come from.
        url: address of `upstream` as written, empty without one.
    """
    try:
        upstream = parse_remote(url) if url else None
    except RefusedError:
        return None
    return None if upstream is None or upstream.same_place(remote) else upstream
