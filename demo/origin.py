"""The bare origin: this checkout's HEAD and one newer commit, and the owner's clone that is still at HEAD.

Everything is made with git plumbing in the demo's own folder; the checkout is only fetched from.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Final

import attrs

from demo.errors import DemoError

__all__ = ["Origin", "make_origin"]

VERSION_FILE: Final = "nedura/_version.py"
_VERSION: Final = re.compile(r'(__version__ = "\d+\.\d+\.)(\d+)"')


@attrs.frozen(kw_only=True)
class Origin:
    """What there is to update from.

    Attributes:
        bare: the origin.
        source: the clone that is installed from.
        head, newer: commit ids.
        version: the newer commit's version.
    """

    bare: Path
    source: Path
    head: str
    newer: str
    version: str


async def _git(*argv: str, git_dir: Path | None = None, data: str = "", **environ: str) -> str:
    base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if git_dir is not None:
        base["GIT_DIR"] = str(git_dir)
    process = await asyncio.create_subprocess_exec(
        "git",
        *argv,
        env={**base, "GIT_TERMINAL_PROMPT": "0", **environ},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(data.encode())
    if process.returncode:
        lines = err.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise DemoError(f"git {argv[0]} failed: {lines[-1]}")
    return out.decode().strip()


async def make_origin(checkout: Path, folder: Path) -> Origin:
    """Make origin and clone in `folder`.

    Raises:
        DemoError: the checkout is no git checkout, or git failed.
    """
    if not (checkout / ".git").exists():
        raise DemoError(f"{checkout} is no git checkout; the demo needs one: git clone it.")
    bare, source = folder / "origin.git", folder / "source"
    await _git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    await _git("fetch", "--quiet", "--update-shallow", str(checkout), "+HEAD:refs/heads/main", git_dir=bare)
    await _git("clone", "--quiet", "--branch", "main", str(bare), str(source))
    head = await _git("rev-parse", "refs/heads/main", git_dir=bare)
    newer, version = await _add_newer(bare, head, folder)
    return Origin(bare=bare, source=source, head=head, newer=newer, version=version)


async def _add_newer(bare: Path, head: str, folder: Path) -> tuple[str, str]:
    """One commit more on main that only raises the version."""
    before = await _git("cat-file", "blob", f"{head}:{VERSION_FILE}", git_dir=bare)
    found = _VERSION.search(before)
    if found is None:
        raise DemoError(f"{VERSION_FILE} names no version.")
    after = _VERSION.sub(lambda match: f'{match[1]}{int(match[2]) + 1}"', before, count=1)
    index = str(folder / "newer.index")
    blob = await _git("hash-object", "-w", "--stdin", git_dir=bare, data=after + "\n")
    await _git("read-tree", head, git_dir=bare, GIT_INDEX_FILE=index)
    await _git(
        "update-index", "--cacheinfo", f"100644,{blob},{VERSION_FILE}", git_dir=bare, GIT_INDEX_FILE=index
    )
    tree = await _git("write-tree", git_dir=bare, GIT_INDEX_FILE=index)
    who = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", "nedura demo"), ("EMAIL", "demo@example.test"))
    }
    commit = await _git("commit-tree", tree, "-p", head, "-m", "Raise the version", git_dir=bare, **who)
    await _git("update-ref", "refs/heads/main", commit, head, git_dir=bare)
    Path(index).unlink()
    return commit, f"{found[1].split(chr(34))[1]}{int(found[2]) + 1}"
