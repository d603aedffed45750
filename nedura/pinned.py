"""Whether this process runs pinned to its generation. Standard library only: entry points ask it first (generations.md 3)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["pinned"]

_VENV: Final = re.compile(r"/generations/[0-9]{6,}/venv\Z")


def pinned(prefix: str | None = None, modules: Mapping[str, Any] | None = None) -> str:
    """Empty when all is well, else why this process must not go on.

    `site` swallows an exception in a `.pth` file, so a process of a generation could run without its pin and without its lease.

    Args:
        prefix: `sys.prefix`.
        modules: `sys.modules`.
    """
    prefix = sys.prefix if prefix is None else prefix
    modules = sys.modules if modules is None else modules
    if not _VENV.search(prefix):
        return ""
    pin = modules.get("_generation")
    root = getattr(pin, "GENERATION", "")
    if not root or getattr(pin, "LEASE", -1) < 0:
        return "this process did not take the lease of its generation"
    here = os.path.realpath(__file__)
    return (
        ""
        if here.startswith(os.path.join(root, ""))
        else "this process imported code from outside its generation"
    )
