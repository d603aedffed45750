"""Asking an index for the newest release and downloading its archive: one deadline, counted bytes, a checked hash."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from nedura.errors import ConfigError, PortalError, Unreachable, UntrustedServer, UpdateError
from nedura.http import Answer, Client, open_client
from nedura.text import clean
from nedura.update.planning.deadlines import FETCH_TIMEOUT
from nedura.update.source.release import MAX_ARCHIVE, Offer, parse_index
from nedura.update.source.urls import Remote
from nedura.urls import origin_of

__all__ = ["ask_index", "download"]

MAX_INDEX: Final = 64 << 10
INDEX_TIMEOUT: Final = 30.0
MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_BLOCK: Final = 1 << 20
_LOST = (Unreachable, UntrustedServer, PortalError, ConfigError)


def _failed(message: str, advice: str = "Nothing was changed. Try again later.") -> UpdateError:
    return UpdateError(message, stop_class="fetch_failed", advice=advice)


def _status(remote: Remote, status: int, text: str, *, archive: bool = False) -> UpdateError:
    """What a status other than 2xx means. A page for browsers is not quoted."""
    match status:
        case 429:
            what = "answers too many requests from here"
        case 404 | 410:
            what = "names an archive that is not there" if archive else "has nothing at the pinned address"
        case 401 | 403:
            what = "does not give the release away without a login"
        case _ if status >= 500:
            what = "has trouble of its own"
        case _:
            what = "did not give the release"
    said = "" if not text or text.lstrip().startswith("<") else f": {clean(text, 100)}"
    return _failed(f"{remote.shown} {what} (status {status}{said}).")


async def ask_index(remote: Remote, environ: Mapping[str, str]) -> Offer:
    """The newest release at an address. An address that ends in `.zip` is the archive itself, and only its bytes tell which one.

    Args:
        remote: from `archive_remote`.
        environ: proxies and trust.

    Raises:
        UpdateError: it cannot be asked, or makes no sense; `stop_class` is `fetch_failed`.
    """
    if remote.path.endswith(".zip"):
        return Offer(url=remote.url)
    try:
        async with open_client(environ=environ) as client:
            answer = await client.request("GET", remote.url, max_bytes=MAX_INDEX, deadline_s=INDEX_TIMEOUT)
    except _LOST as error:
        raise _failed(error.message, error.advice) from error
    if not answer.ok:
        raise _status(remote, answer.status, answer.text)
    return parse_index(answer.body, remote.url)


async def download(
    offer: Offer, remote: Remote, target: Path, environ: Mapping[str, str], *, timeout: float = FETCH_TIMEOUT
) -> str:
    """Download an archive into a new file; returns its SHA-256. What is not whole is removed.

    Args:
        offer: what to get; its size and hash are checked where it states them.
        remote: pinned address, for messages.
        target: file to make.
        environ: proxies and trust.
        timeout: seconds for everything.

    Raises:
        UpdateError: it cannot be had, is cut, too large or not what the index says; `stop_class` is `fetch_failed`, `git_timeout` when the
            time ran out, `disk_full`.
    """
    try:
        async with asyncio.timeout(timeout), open_client(environ=environ) as client:
            size, digest = await _follow(client, offer, remote, target)
        if offer.size and size != offer.size:
            raise _failed(f"The archive is cut: {size} of {offer.size} bytes came.")
        if offer.sha256 and digest != offer.sha256:
            raise _failed(
                f"The archive is not the one that the index names: its SHA-256 is {digest[:16]}..., "
                f"not {offer.sha256[:16]}...",
                "Nothing was changed. Tell whoever publishes it.",
            )
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, TimeoutError):
            raise UpdateError(
                f"The archive did not arrive within {timeout:.0f} s.", stop_class="git_timeout"
            ) from error
        if isinstance(error, _LOST):
            raise _failed(error.message, error.advice) from error
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise UpdateError(
                f"The archive cannot be written: {error.strerror}.",
                stop_class="disk_full" if full else "permission_denied",
                advice="Free some space." if full else "",
            ) from error
        raise
    return digest


async def _follow(client: Client, offer: Offer, remote: Remote, target: Path) -> tuple[int, str]:
    """Bytes and hash of the file, redirects followed: to https, or to where the address itself is."""
    url = offer.url
    for _ in range(MAX_REDIRECTS + 1):
        async with client.chunks(url) as answer:
            if not isinstance(answer, Answer):
                return await _write(answer, target, offer.size or MAX_ARCHIVE)
        place = answer.headers.get("location", "") if answer.status in _REDIRECTS else ""
        if not place:
            raise _status(remote, answer.status, answer.text, archive=offer.url != remote.url)
        url, before = urljoin(url, place), url
        origin = origin_of(url)
        if origin is None or (origin.scheme != "https" and origin != origin_of(before)):
            raise _failed(f"{remote.shown} leads to an address that is not used.")
    raise _failed(f"{remote.shown} leads from address to address.")


async def _write(chunks: AsyncIterator[bytes], target: Path, limit: int) -> tuple[int, str]:
    digest, size, waiting = hashlib.sha256(), 0, bytearray()
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise _failed(f"The archive is larger than the {limit} bytes that it may have.")
            digest.update(chunk)
            waiting += chunk
            if len(waiting) >= _BLOCK:
                await asyncio.to_thread(_put, handle, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(_put, handle, bytes(waiting))
    finally:
        os.close(handle)
    return size, digest.hexdigest()


def _put(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
