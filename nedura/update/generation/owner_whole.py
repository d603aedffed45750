"""The owner's checkout of a sealed install, whole: a fast-forward of ours that was cut off there is finished or put back first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nedura.errors import RefusedError
from nedura.text import clean
from nedura.update.source.git import find_git
from nedura.update.source.index_note import free_dead_index
from nedura.update.source.move_marker import MARKER
from nedura.update.source.owner_checkout import Source, read_source

__all__ = ["read_whole_source"]


def read_whole_source(checkout: Path, environ: Mapping[str, str]) -> Source:
    """What we know of the checkout; files that our own move left half way would be taken for the owner's edits.

    Raises:
        RefusedError: it cannot be used as a source, or what was cut off there cannot be mended.
    """
    program = find_git(environ)
    source = read_source(checkout, program, environ)
    free_dead_index(str(source.git_dir))
    if not os.path.lexists(source.git_dir / MARKER):
        return source
    from nedura.update.source.torn import TornError, mend

    try:
        mend(str(source.checkout), program=str(program), again=True)
    except TornError as error:
        why = clean(str(error), 300)
        raise RefusedError(why, advice=f"Look at it with: git -C {source.checkout} status") from error
    return read_source(checkout, program, environ)
