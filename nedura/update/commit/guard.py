"""Guards of a moved checkout: the launch closure compiles, stale bytecode is gone, the entry points import."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from nedura.product import Product
from nedura.programs import child_environment
from nedura.text import clean
from nedura.update.bounded import run_bounded

__all__ = ["drop_bytecode", "import_failure", "launch_failure"]

MAX_SOURCE: Final = 8 * 1024 * 1024
IMPORT_SECONDS: Final = 30.0


def launch_failure(checkout: Path, product: Product) -> str:
    """Why a start from this tree would fail: the first module of the launch closure that does not compile; empty when all do.

    The closure is followed from the entry points through the source, not a list by hand; nothing is run or written.
    """
    waiting = [name for name in product.launch_modules if _find(checkout, product, name) is not None]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        path = _find(checkout, product, name)
        if path is None:
            continue
        try:
            with open(path, "rb") as file:
                source = file.read(MAX_SOURCE)
            tree = ast.parse(source, str(path))
            compile(tree, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{path.relative_to(checkout)}: {clean(error, 160)}"
        except OSError as error:
            return f"{path.relative_to(checkout)}: {error.strerror}"
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for found in _imports(tree, package):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return ""


def _find(checkout: Path, product: Product, name: str) -> Path | None:
    for root in product.roots:
        base = (checkout / root).joinpath(*name.split("."))
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Modules that a source names anywhere, and the packages around them."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
        for name in names:
            parts = name.split(".")
            for length in range(1, len(parts) + 1):
                yield ".".join(parts[:length])


def drop_bytecode(checkout: Path, changed: Iterable[str]) -> int:
    """Remove compiled forms of changed sources: equal size and whole-second times would let old code run (case C049)."""
    count = 0
    stems: dict[Path, set[str]] = {}
    for path in changed:
        if path.endswith(".py"):
            source = checkout / path
            stems.setdefault(source.parent / "__pycache__", set()).add(source.stem)
    for folder, names in stems.items():
        try:
            compiled = os.listdir(folder)
        except OSError:
            continue
        for name in compiled:
            if name.endswith(".pyc") and name.split(".", 1)[0] in names:
                try:
                    (folder / name).unlink()
                except OSError:
                    continue
                count += 1
    return count


def import_failure(
    checkout: Path,
    product: Product,
    python: Path,
    environ: Mapping[str, str],
    *,
    seconds: float = IMPORT_SECONDS,
) -> str:
    """Why the entry points cannot be imported from this tree, in a child without secrets; empty when they can."""
    modules = [name for name in product.launch_modules if _find(checkout, product, name) is not None]
    roots = [str(checkout / root) for root in product.roots]
    code = f"import sys; sys.path[:0] = {roots!r}\nimport importlib\nfor name in {modules!r}: importlib.import_module(name)"
    env = child_environment(environ, NEDURA_HOME=os.devnull)
    done = run_bounded([str(python), "-I", "-B", "-c", code], env=env, cwd="/", timeout=seconds)
    if done.code == 0:
        return ""
    if done.timed_out:
        return f"importing took longer than {seconds:.0f} s"
    lines = done.err.decode("utf-8", "replace").strip().splitlines()
    return clean(lines[-1] if lines else "it ended without a word", 200)
