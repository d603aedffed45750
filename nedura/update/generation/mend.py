"""Builds the next generation from the whole copy of a damaged one that this file lies in. The launcher starts it by path.

`mend.py GENERATION ROOT...`: with the standard library alone, by the steps of `repair`. What was there stays until the new one is whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TREE: Final = Path(os.path.realpath(__file__)).parents[3]

if __name__ == "__main__":
    sys.path.insert(0, str(TREE))

from nedura.errors import NeduraError, UpdateError  # noqa: E402
from nedura.update.generation.damage import damage  # noqa: E402
from nedura.update.generation.interpreter import base_python, inspect  # noqa: E402
from nedura.update.generation.repair import repair  # noqa: E402

__all__ = ["main", "mend"]


def mend(generation: Path, tree: Path, roots: Sequence[str]) -> Path:
    """Build and publish a whole generation of the same version.

    Args:
        generation: the damaged one.
        tree: a copy of its tree in which every file is whole.
        roots: folders of the tree for `sys.path`; its pin may be damaged, too.

    Raises:
        UpdateError: what was built is not whole either.
        StoreError: a record cannot be read or written.
    """
    made = repair(generation, inspect(base_python()), tree=tree, roots=roots, check=_check)
    return made


def _check(made: Path) -> None:
    """Nothing becomes current that is not, byte for byte, what its manifest says."""
    broken = damage(str(made))
    if broken:
        raise UpdateError(f"{broken[0]} could not be restored.", stop_class="damaged_generation")


def main(argv: list[str]) -> int:
    """Mend, and say so in one line."""
    try:
        made = mend(Path(os.path.realpath(argv[0])), TREE, argv[1:])
    except (NeduraError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{error.message if isinstance(error, NeduraError) else error}\n")
        return 1
    sys.stdout.write(
        f"Repaired: generation {made.name} holds the same version and is current; "
        "members move to it when they are restarted.\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
