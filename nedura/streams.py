"""Standard streams that cannot break a command: a full disk, a closed descriptor or a missing character loses output, never work.

What could not be written to stdout is kept as a fact, so that the end of the command can say so. A reader that went away is left to
its usual error: that is how a pipe ends a command.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any, Final, TextIO

__all__ = ["ReaderGone", "StandardStreams", "mend_streams", "outlive_reader"]

_MODES: Final = {0: os.O_RDONLY, 1: os.O_WRONLY, 2: os.O_WRONLY}


class ReaderGone(BrokenPipeError):
    """Raised by a write to stdout when it is a pipe that nobody reads any more. No other broken connection is one."""


class _Lossy(io.RawIOBase):
    """A descriptor whose writes do not fail, but for a pipe that nobody reads."""

    def __init__(self, handle: int, *, pipe_counts: bool) -> None:
        self._handle = handle
        self.pipe_counts = pipe_counts
        self.lost: OSError | None = None

    def fileno(self) -> int:
        return self._handle

    def isatty(self) -> bool:
        return os.isatty(self._handle)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._write(data)
        except OSError as error:
            if self.pipe_counts and isinstance(error, BrokenPipeError):
                raise ReaderGone(error.errno, error.strerror) from error
            self.lost = self.lost or error
            return len(data)

    def _write(self, data: Any) -> int:
        while True:
            try:
                return os.write(self._handle, data)
            except BlockingIOError:  # somebody who shares it made it non-blocking
                select.select([], [self._handle], [])


class StandardStreams:
    """What became of the process's streams. Made by `mend_streams`."""

    def __init__(self, out: _Lossy | None) -> None:
        self._out = out

    def problem(self) -> str:
        """Why a part of stdout could not be written, in the system's words; empty when all of it was.

        Raises:
            ReaderGone: the reader of a pipe went away.
        """
        sys.stdout.flush()
        lost = self._out.lost if self._out is not None else None
        return lost.strerror or type(lost).__name__ if lost is not None else ""


def mend_streams() -> StandardStreams:
    """Open what is closed (a file of ours must never get the number of a standard stream) and make the outputs lossy.

    A stream that was closed on purpose takes everything and keeps nothing. Terminals stay as they are but for their characters.
    """
    for number, mode in _MODES.items():
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    out: _Lossy | None = None
    if _ours(sys.stdout, 1):
        out = _Lossy(1, pipe_counts=True)
        sys.stdout = _text(out, sys.stdout)
    if _ours(sys.stderr, 2):
        sys.stderr = _text(_Lossy(2, pipe_counts=False), sys.stderr, at_once=True)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    return StandardStreams(out)


def outlive_reader() -> None:
    """From now on a pipe that nobody reads any more loses output only: for work that must not end half-way because of `| head`."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Lossy):
        raw.pipe_counts = False


def _ours(stream: TextIO | None, number: int) -> bool:
    """Whether a stream is the interpreter's own and leads to no terminal; one that somebody put there stays."""
    original = sys.__stdout__ if number == 1 else sys.__stderr__
    return stream is None or (stream is original and not os.isatty(number))


def _text(raw: _Lossy, like: TextIO | None, *, at_once: bool = False) -> TextIO:
    encoding = "utf-8"
    if like is not None:
        like.flush()
        encoding = like.encoding
        at_once |= bool(getattr(like, "write_through", False))  # PYTHONUNBUFFERED
    buffered: Any = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, encoding=encoding, errors="replace", line_buffering=at_once)
