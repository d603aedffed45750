"""What Python runs or believes at each start, before anybody judged it: start-up modules by any of their file names, and `.pth` files.

Standard library only: the bootstrap of new code judges an environment with it before any dependency exists.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["START_HOOKS", "is_start_hook", "judge_pth"]

START_HOOKS: Final = frozenset({"sitecustomize", "usercustomize"})
MAX_PTH: Final = 1 << 20
_MODULES: Final = (".py", ".pyc", ".so", ".pyd")
"""How files end that an import takes: sources, bytecode beside which no source is needed, extension modules with any tag."""
_RUNS: Final = re.compile("[\ufeff\\s]*import[\\s;]")


def is_start_hook(path: str) -> bool:
    """Whether a path (of a file below a folder of `sys.path`) is a start-up module of it or a file of such a package."""
    name, slash, _ = path.partition("/")
    return name in START_HOOKS if slash else name.partition(".")[0] in START_HOOKS and name.endswith(_MODULES)


def judge_pth(folder: str, name: str) -> str:
    """Why a `.pth` file of a site folder must not be there; empty when it only names folders beside it.

    Args:
        folder: the site folder.
        name: name of the file.

    Raises:
        OSError: it cannot be read.
    """
    with open(os.path.join(folder, name), "rb") as file:
        data = file.read(MAX_PTH + 1)
    if len(data) > MAX_PTH:
        return "which is too large to be judged"
    for line in data.decode("utf-8", "replace").splitlines():
        if _RUNS.match(line):
            return "which would run code at each start"
        place = line.strip("\ufeff \t")
        if place and not place.startswith("#"):
            target = os.path.normpath(os.path.join(folder, place))
            if target != folder and not target.startswith(f"{folder}{os.sep}"):
                return "which leads Python to a folder outside the environment"
    return ""
