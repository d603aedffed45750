"""Before a working tree moves, the old process imports everything of its own that it may still need: afterwards the files are new code."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from nedura.text import clean

__all__ = ["preload"]

_LEFT_OUT: Final = ("nedura.testing", "nedura._old_updater", "nedura.update_")
_PACKAGES: Final = ("nedura", "nedura_cli")


def preload(tree: Path | None = None, files: Collection[str] | None = None) -> tuple[str, ...]:
    """Import every module of ours. One that an optional extra is missing for is left out.

    Args:
        tree: the working tree.
        files: paths of it that belong to the version; a script that somebody put beside them is not ours to run. None: all of them do.

    Returns:
        `module: reason` of what failed in another way, as an edit of the owner's may: it was not needed so far.
    """
    faults = []
    for package in _PACKAGES:
        root = sys.modules.get(package)
        if root is None:
            continue
        for name, path in _modules(root.__path__, f"{package}."):
            if name in sys.modules or not _is_ours(path, tree, files):
                continue
            try:
                importlib.import_module(name)
            except ImportError:
                continue
            except (Exception, SystemExit) as error:  # border: a file that the owner edited may do anything
                faults.append(f"{name}: {type(error).__name__}: {clean(error, 120)}")
    return tuple(faults)


def _modules(folders: Iterable[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Name and source file of the modules below some folders, told without importing any."""
    for folder in folders:
        for info in pkgutil.iter_modules([folder], prefix):
            if info.name.startswith(_LEFT_OUT) or info.name.endswith("__main__"):
                continue
            place = os.path.join(folder, info.name.rpartition(".")[2])
            yield info.name, os.path.join(place, "__init__.py") if info.ispkg else f"{place}.py"
            if info.ispkg:
                yield from _modules([place], f"{info.name}.")


def _is_ours(path: str, tree: Path | None, files: Collection[str] | None) -> bool:
    if tree is None or files is None:
        return True
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(tree))
    return relative.startswith("..") or relative in files
