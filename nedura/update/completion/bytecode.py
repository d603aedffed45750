"""Stale bytecode of a checkout: swept once per version, remembered by a fingerprint (facts/update.md 8.5 D).

A sealed generation needs none of this: its bytecode is made from its own files and never written again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Final

from nedura.errors import RecordMissing, StoreError, UpdateError
from nedura.records import read_bytes, remove, write_bytes
from nedura.text import clean

__all__ = ["FINGERPRINT", "fingerprint", "is_valid", "sweep_bytecode"]

FINGERPRINT: Final = ".bytecode-fingerprint"
_LEFT: Final = frozenset({".git", "node_modules", ".venv", "venv", "site-packages"})


def fingerprint(code_sha: str) -> str:
    """Names the code and the interpreter that a sweep was made for."""
    tag = sys.implementation.cache_tag or sys.implementation.name
    return hashlib.sha256(f"{code_sha} {tag} {MAGIC_NUMBER.hex()}".encode()).hexdigest()[:32]


def sweep_bytecode(tree: Path, state: Path, code_sha: str) -> int | None:
    """Remove compiled files that could run old code, then stamp. Blocks.

    Args:
        tree: the checkout.
        state: the install's state folder.
        code_sha: the commit that runs.

    Returns:
        how many files went; None when this version was swept already.

    Raises:
        UpdateError: some could not be removed; it is not stamped then, so the next run sweeps again.
        StoreError: the stamp cannot be read or written.
    """
    stamp, wanted = state / FINGERPRINT, fingerprint(code_sha)
    if _stamped(stamp) == wanted:
        return None
    remove(stamp)
    count, failed = 0, []
    for path in _compiled(tree):
        if is_valid(path):
            continue
        try:
            path.unlink(missing_ok=True)
            count += 1
        except OSError as error:
            failed.append(f"{clean(str(path.relative_to(tree)), 120)}: {error.strerror}")
    if failed:
        raise UpdateError(
            f"{len(failed)} old compiled files cannot be removed ({failed[0]}).", stop_class="bytecode"
        )
    write_bytes(stamp, f"{wanted}\n".encode())
    return count


def _stamped(stamp: Path) -> str:
    try:
        return read_bytes(stamp).decode("ascii", "replace").strip()
    except RecordMissing:
        return ""
    except StoreError:
        if stamp.is_dir():
            raise
        return ""


def _compiled(tree: Path) -> Iterator[Path]:
    """Compiled files in cache folders; other environments and what links lead to are left alone."""
    for place, folders, files in os.walk(tree):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in _LEFT]
        if os.path.basename(place) == "__pycache__":
            yield from (Path(place, name) for name in files if name.endswith((".pyc", ".pyo")))


def is_valid(compiled: Path) -> bool:
    """Whether a compiled file is proven to come from its source as it is now.

    The header has whole seconds and a size only: two versions of one second and size look the same (case C049). Bytecode that was
    written two seconds after the source's time stamp cannot come from an earlier version with that very stamp.
    """
    source = compiled.parent.parent / (compiled.name.split(".", 1)[0] + ".py")
    try:
        with open(compiled, "rb") as file:
            header = file.read(16)
        of_source, of_compiled = os.stat(source), os.stat(compiled)
    except OSError:
        return False
    if len(header) < 16 or header[:4] != MAGIC_NUMBER or header[4:8] != bytes(4):
        return False
    seconds, size = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    same = seconds == int(of_source.st_mtime) & 0xFFFFFFFF and size == of_source.st_size & 0xFFFFFFFF
    return same and of_compiled.st_mtime >= of_source.st_mtime + 2
