"""Compiles Python files of a tree, as a script of its own: `-I -S -B compile_worker.py`, names on standard input, NUL between.

Runs in the folder of the tree under limits, imports nothing but the standard library, and writes one JSON list of
[name, message] on standard output: the files that do not compile.
"""

from __future__ import annotations

import gc
import json
import py_compile
import resource
import sys

CPU_SECONDS = 900
MEMORY = 4 << 30


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, hard))


def compile_all(names: list[str]) -> list[tuple[str, str]]:
    """Compile each file beside itself; return what failed and why."""
    failed = []
    for name in names:
        try:
            py_compile.compile(name, doraise=True)
        except (py_compile.PyCompileError, ValueError, RecursionError, MemoryError, OSError) as error:
            failed.append((name, str(error)[:300]))
    return failed


def main() -> int:
    """Read names, compile, report."""
    _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_AS, MEMORY)
    gc.disable()  # syntax trees die by reference count; the collector only costs a fifth of the time
    names = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").split("\0")
    failed = compile_all([name for name in names if name])
    sys.stdout.write(json.dumps(failed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
