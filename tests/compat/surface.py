"""Which frozen names a tree lacks. Run in its own interpreter: `python -m tests.compat.surface TREE SURFACE` prints one a line."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def missing(names: list[str]) -> list[str]:
    """Names of the form `module::name` that cannot be imported here; `module::` is the module itself."""
    gone = []
    for entry in names:
        module, _, name = entry.partition("::")
        try:
            found = importlib.import_module(module)
            if name:
                getattr(found, name)
        except (ImportError, AttributeError, SyntaxError):
            gone.append(entry)
    return gone


if __name__ == "__main__":
    tree, surface = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(tree))
    sys.stdout.write("\n".join(missing(json.loads(surface.read_text())["bare"])))
