"""What in a home is code and not the user's: a backup leaves it out, because an import would put old code over new."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import attrs

from nedura.errors import NeduraError, StoreError
from nedura.installs import checkout_of, find_installs, generation_of, release_of
from nedura.update.source.git import find_git
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.release import read_note
from nedura.update.source.source_git import SourceGit, SourceGitError

__all__ = ["CodeFiles", "code_in"]


@attrs.frozen(kw_only=True)
class CodeFiles:
    """The code in a home.

    Attributes:
        folders: real paths of folders of code; they may lie in the home.
        files: paths below the home that are code, where the home is a checkout or an unpacked release itself (case C045).
    """

    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()


def code_in(root: Path, checkout: Path | None = None, *, here: Path | None = None) -> CodeFiles:
    """Find it: the code that runs, and what the installs of this home come from. Blocks the thread.

    Args:
        root: root home.
        checkout: one more folder of code.
        here: a file of the running code; default this one.

    Raises:
        StoreError: the home is a checkout itself, and its code cannot be told from what is the user's.
    """
    here, real = Path(__file__) if here is None else here, os.path.realpath(root)
    sources = [install.source for install in find_installs(root)]
    told = _real((checkout, *sources))
    # a generation that lies in a home which its owner keeps in git is no part of that checkout
    mine = _real((checkout_of(here), release_of(here)) if generation_of(here) is None else ())
    folders = told | mine
    if real not in folders:
        return CodeFiles(folders=folders)
    try:
        files = _tracked(Path(real))
    except (SourceGitError, NeduraError) as error:
        raise StoreError(
            f"The code in this home cannot be told from your own files: {error}",
            advice="See: nedura update --plan",
        ) from error
    ours = real in told or os.path.relpath(os.path.realpath(here), real) in files
    return CodeFiles(folders=folders - {real}, files=files if ours else frozenset())


def _real(folders: Iterable[Path | None]) -> frozenset[str]:
    return frozenset(os.path.realpath(path) for path in folders if path is not None)


def _tracked(root: Path) -> frozenset[str]:
    note = read_note(root)
    if note is not None and not (root / ".git").exists():
        return frozenset(note.files)
    source = read_source(root, find_git())
    return frozenset(SourceGit(find_git(), source.checkout, source.git_dir).run("ls-files", "-z").items)
