"""Repositories of a known size and history, and how a measurement is told."""

from __future__ import annotations

import ast
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nedura.programs import child_environment
from nedura.testing.installs import TOY_FILES, Origin, git

__all__ = ["grow", "make_tree", "quiet", "scratch", "tell", "timed", "toy_with"]


@contextmanager
def scratch() -> Iterator[Path]:
    """A private folder that is removed afterwards, read-only trees included."""
    from nedura.update.generation.environment import discard

    folder = Path(tempfile.mkdtemp(prefix="nedura-bench-"))
    try:
        yield folder
    finally:
        discard(folder)


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def quiet(command: list[str], env: dict[str, str]) -> Callable[[], object]:
    """A call that runs a command silently and insists on its success."""
    return functools.partial(subprocess.run, command, env=env, check=True, capture_output=True)


def tell(name: str, facts: dict[str, float | int | str | bool], ok: bool) -> int:
    """Print the facts and the verdict as one JSON line; the exit status says whether the goal was met."""
    print(json.dumps({"bench": name, **facts, "ok": ok}))
    return 0 if ok else 1


@functools.cache
def _blocks() -> tuple[str, ...]:
    """Functions and classes of this very program, as they stand: the made-up code before compiled at three fifths of their speed."""
    root = Path(__file__).resolve().parents[1]
    found = []
    for path in sorted([*(root / "nedura").rglob("*.py"), *(root / "renderers").rglob("*.py")]):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        for node in ast.parse("".join(lines)).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found.append("".join(lines[first - 1 : node.end_lineno]) + "\n\n")
    return tuple(found)


def body(rng: random.Random, size: int) -> str:
    """A Python module of about `size` bytes, put together from blocks of real code."""
    lines = [f"# {rng.randrange(10**9)}\n", "from __future__ import annotations\n\n\n"]
    total = 0
    while total < size:
        block = rng.choice(_blocks())
        if total + len(block) - size > size - total:
            break
        lines.append(block)
        total += len(block)
    return "".join(lines)


def toy_with(count: int, size: int = 7000, seed: int = 1) -> dict[str, str | bytes | None]:
    """The toy and so many further modules."""
    rng = random.Random(seed)
    return {**TOY_FILES, **{f"toy/p{i // 50:02}/m{i:04}.py": body(rng, size) for i in range(count)}}


def make_tree(folder: Path, count: int, size: int = 7000) -> Origin:
    """An origin with one commit of so many files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    origin = Origin(folder)
    _import(folder, [(toy_with(count, size), "first")])
    return origin


def grow(origin: Origin, commits: int, count: int, size: int = 7000, share: float = 0.93) -> None:
    """Publish so many commits that together change a share of the modules."""
    rng = random.Random(2)
    names = [f"toy/p{i // 50:02}/m{i:04}.py" for i in range(int(count * share))]
    rng.shuffle(names)
    steps: list[tuple[dict[str, str | bytes | None], str]] = []
    for number in range(commits):
        name = names[number % len(names)]
        steps.append(({name: body(rng, size)}, f"change {number}"))
    if commits < len(names):
        for number, name in enumerate(names[commits:]):
            steps[number % commits][0][name] = body(rng, size)
    _import(origin.folder, steps)


def _import(folder: Path, steps: list[tuple[dict[str, str | bytes | None], str]]) -> None:
    """Write commits through `git fast-import`, thousands a second."""
    program = "/usr/bin/git" if os.path.exists("/usr/bin/git") else "git"
    with subprocess.Popen(
        [program, "fast-import", "--quiet", "--force"],
        cwd=folder,
        env=child_environment(),
        stdin=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        fresh = not git(folder, "for-each-ref")
        for number, (files, message) in enumerate(steps):
            child.stdin.write(
                f"commit refs/heads/main\ncommitter T <t@example.org> {1_700_000_000 + number} +0000\n".encode()
            )
            child.stdin.write(f"data {len(message)}\n{message}\n".encode())
            if number == 0 and not fresh:
                child.stdin.write(b"from refs/heads/main^0\n")
            for name, content in files.items():
                data = content.encode() if isinstance(content, str) else content or b""
                child.stdin.write(f"M 100644 inline {name}\ndata {len(data)}\n".encode() + data + b"\n")
    assert child.returncode == 0
    git(folder, "reset", "-q", "--hard", "main")


def python() -> str:
    """The running interpreter."""
    return sys.executable
