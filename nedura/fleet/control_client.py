"""Asking a home's control socket. Any failure is "no answer": the caller falls back to files, then to a scan."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nedura.fleet.control_protocol import ANSWER_LIMIT, encode_request, parse_answer
from nedura.fleet.socketpath import find_socket, peer_of

__all__ = ["ASK_TIMEOUT", "ask", "ask_now"]

ASK_TIMEOUT: Final = 2.0
_RETRY: Final = 0.02

logger = logging.getLogger(__name__)


def _place(home: Path, environ: Mapping[str, str] | None) -> tuple[Path, int] | None:
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return None
    path = find_socket(home, "gateway", os.environ if environ is None else environ, owner)
    return None if path is None else (path, owner)


def _peer(link: socket.socket, owner: int, path: Path) -> int | None:
    """The kernel's pid of the other end; None when the other end is not the home's owner."""
    peer = peer_of(link)
    if peer is None:
        return None
    if peer[1] != owner:
        logger.warning("%s is served by another user and was not asked", path.name)
        return None
    return peer[0]


def _believed(line: bytes, pid: int) -> dict[str, Any] | None:
    """An answer whose claimed pid is not the kernel's is no answer; a pid of another namespace is unknown."""
    answer = parse_answer(line)
    if answer is None:
        return None
    claimed = answer.get("pid", answer.get("answering_pid"))
    if claimed is not None and pid and claimed != pid:
        return None
    answer["kernel_pid"] = pid or None
    return answer


async def _connected(path: Path) -> socket.socket:
    """A non-blocking connection; a full backlog is tried again until the caller's time is over."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.setblocking(False)
        while True:
            try:
                link.connect(str(path))
                return link
            except BlockingIOError:
                await asyncio.sleep(_RETRY)
    except BaseException:
        link.close()
        raise


def _connect(link: socket.socket, path: Path, deadline: float) -> None:
    """`_connected` for code without an event loop.

    Raises:
        OSError: nobody took it in time.
    """
    import time

    while True:
        try:
            link.connect(str(path))
            return
        except BlockingIOError:
            if time.monotonic() + _RETRY >= deadline:
                raise
            time.sleep(_RETRY)


async def ask(
    home: Path,
    verb: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float = ASK_TIMEOUT,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """Ask the member that serves a home.

    Args:
        home: its home.
        verb: what to ask.
        params: arguments of the verb.
        timeout: seconds for connect and answer.
        environ: the environment, for the user's runtime folder.

    Returns:
        The answer's result with `kernel_pid` added, or None for any failure.
    """
    place = _place(home, environ)
    if place is None:
        return None
    path, owner = place
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(
                sock=await _connected(path), limit=ANSWER_LIMIT
            )
            pid = _peer(writer.get_extra_info("socket"), owner, path)
            if pid is None:
                return None
            writer.write(encode_request(verb, params))
            await writer.drain()
            return _believed(await reader.readuntil(b"\n"), pid)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    finally:
        if writer is not None:
            writer.close()


def ask_now(
    home: Path,
    verb: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float = ASK_TIMEOUT,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """`ask` for code without an event loop; blocks at most about `timeout` seconds.

    Args:
        home: its home.
        verb: what to ask.
        params: arguments of the verb.
        timeout: seconds for connect and answer.
        environ: the environment, for the user's runtime folder.
    """
    import time

    place = _place(home, environ)
    if place is None:
        return None
    path, owner = place
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(timeout)
            _connect(link, path, deadline)
            pid = _peer(link, owner, path)
            if pid is None:
                return None
            link.sendall(encode_request(verb, params))
            data = b""
            while not data.endswith(b"\n") and len(data) <= ANSWER_LIMIT:
                link.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = link.recv(65536)
                if not chunk:
                    return None
                data += chunk
            return _believed(data, pid)
    except OSError:
        return None
