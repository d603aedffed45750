"""File locks: flock on a file of ours that stays where it is; the kernel releases it when its holder dies.

Order, outermost first (a process that holds a later one never takes an earlier one):
update -> install -> restart of a member -> gateway claim -> profile auth -> shared auth -> hand-off -> restart record -> config.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nedura.errors import LockTimeout, RecordUnreadable
from nedura.records import open_ours
from nedura.text import clean

__all__ = ["POLL_SECONDS", "FileLock", "holder_of", "locked"]

POLL_SECONDS: Final = 0.05
DEFAULT_TIMEOUT: Final = 15.0


def holder_of(path: Path) -> int | None:
    """The pid that a lock file names, for display only; None when it names none."""
    try:
        text = path.read_bytes()[:32].split(b"\n", 1)[0].strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


class FileLock:
    """An exclusive flock with the holder's pid as its content.

    Args:
        path: the lock file; created 0600, never unlinked.
        what: how to call it in an error.
    """

    def __init__(self, path: Path, what: str = "") -> None:
        self.path = path
        self.what = what or clean(path.name)
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._handle is not None

    def fileno(self) -> int:
        """Descriptor of the held lock, for a child that must inherit it."""
        if self._handle is None:
            raise ValueError("the lock is not held")
        return self._handle

    def try_acquire(self) -> bool:
        """Take the lock if it is free now.

        Raises:
            StoreError: the lock file cannot be used.
        """
        handle = open_ours(self.path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return False
            raise RecordUnreadable(f"{self.what} cannot be locked: {error.strerror}.") from error
        self._handle = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # a full disk: the pid is for display only, the lock itself is held
            pass
        except BaseException:
            self.release()
            raise
        return True

    def acquire(
        self, timeout: float = DEFAULT_TIMEOUT, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the lock, polling, for at most `timeout` seconds. Blocks the thread: async code calls `acquire_async`.

        Raises:
            LockTimeout: somebody else kept it.
            StoreError: the lock file cannot be used.
        """
        start = monotonic()
        while not self.try_acquire():
            if monotonic() - start >= timeout:
                raise LockTimeout(self.what, holder=holder_of(self.path), waited=timeout)
            time.sleep(POLL_SECONDS)

    async def acquire_async(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        """`acquire` for the event loop.

        Raises:
            LockTimeout, StoreError: as `acquire`.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        while not self.try_acquire():
            if loop.time() - start >= timeout:
                raise LockTimeout(self.what, holder=holder_of(self.path), waited=timeout)
            await asyncio.sleep(POLL_SECONDS)

    def release(self) -> None:
        """Let go; a lock that is not held stays as it is."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class _Depth(threading.local):
    def __init__(self) -> None:
        self.held: dict[str, int] = {}


_depth = _Depth()


@contextmanager
def locked(path: Path, timeout: float = DEFAULT_TIMEOUT, what: str = "") -> Iterator[None]:
    """Hold a file lock for a block; re-entrant in one thread. Never `await` or `yield` to a caller inside it.

    Raises:
        LockTimeout, StoreError: as `FileLock.acquire`.
    """
    key = os.path.realpath(path)
    if _depth.held.get(key, 0):
        _depth.held[key] += 1
        try:
            yield
        finally:
            _depth.held[key] -= 1
        return
    lock = FileLock(path, what)
    lock.acquire(timeout)
    _depth.held[key] = 1
    try:
        yield
    finally:
        del _depth.held[key]
        lock.release()
