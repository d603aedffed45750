"""Before a working tree moves, the old process imports everything of its own that it may still need: afterwards the files are new code."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Final

__all__ = ["preload"]

_LEFT_OUT: Final = ("nedura.testing", "nedura._old_updater", "nedura.update_")
_PACKAGES: Final = ("nedura", "nedura_cli")


def preload() -> int:
    """Import every module of ours; returns how many there are. One that an optional extra is missing for is left out."""
    count = 0
    for package in _PACKAGES:
        root = sys.modules.get(package)
        if root is None:
            continue
        for info in pkgutil.walk_packages(root.__path__, f"{package}."):
            if info.name.startswith(_LEFT_OUT) or info.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(info.name)
            except ImportError:
                continue
            count += 1
    return count
