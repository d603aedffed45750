"""Compiles Python files of a tree, as a script of its own: `-I -S -B compile_worker.py`, names on standard input, NUL between.

Runs in the folder of the tree under limits and writes on standard output, NUL between: name and message of each file that does
not compile, then a dot. It imports next to nothing: `json` and `importlib.util` took longer than compiling ten files.
"""

from __future__ import annotations

import gc
import marshal
import os
import resource
import sys

try:
    from importlib._bootstrap_external import MAGIC_NUMBER, cache_from_source
except ImportError:  # where `importlib.util` has them from, without its other imports
    from importlib.util import MAGIC_NUMBER, cache_from_source

CPU_SECONDS = 900
MEMORY = 4 << 30
_WORD = 0xFFFFFFFF


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, hard))


def _compile(name: str) -> None:
    """Write the bytecode of one file, valid by the time stamp and size of its source (PEP 552, flags 0)."""
    with open(name, "rb") as file:
        info = os.fstat(file.fileno())
        source = file.read()
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True))
    words = (0, int(info.st_mtime) & _WORD, info.st_size & _WORD)
    head = MAGIC_NUMBER + b"".join(word.to_bytes(4, "little") for word in words)
    _write(cache_from_source(name), head + code)


def _write(target: str, data: bytes) -> None:
    """A new file in any case: an old one of that name may be another generation's, too."""
    try:
        os.mkdir(os.path.dirname(target))
    except FileExistsError:
        _remove(target)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        os.close(handle)


def _remove(target: str) -> None:
    try:
        os.unlink(target)
    except FileNotFoundError:
        pass


def _told(error: Exception) -> str:
    if not isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    import traceback

    return "".join(traceback.format_exception_only(error))


def compile_all(names: list[str]) -> list[tuple[str, str]]:
    """Compile each file beside itself; return what failed and why."""
    failed = []
    for name in names:
        try:
            _compile(name)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            failed.append((name, _told(error)[:300]))
    return failed


def main() -> int:
    """Read names, compile, report."""
    _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_AS, MEMORY)
    gc.disable()  # syntax trees die by reference count; the collector only costs a fifth of the time
    names = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").split("\0")
    failed = compile_all([name for name in names if name])
    words = [word.replace("\0", " ") for one in failed for word in one]
    sys.stdout.buffer.write("\0".join([*words, "."]).encode("utf-8", "surrogateescape"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
