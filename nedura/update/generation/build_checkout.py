"""Declared builds in a checkout: after the move, in a copy of the tree, put into the working tree by two renames (decision 42)."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nedura.clock import iso
from nedura.errors import RecordMissing, StoreError
from nedura.installs import InstallPaths
from nedura.product import Build
from nedura.records import make_folder, read_json, write_json
from nedura.update.bounded import own_umask
from nedura.update.generation.artifact import drop, is_artifact, leaves_trace
from nedura.update.generation.build_run import built, inside
from nedura.update.generation.builds import Decision, decide_builds
from nedura.update.generation.tree import list_tree
from nedura.update.generation.tree_rules import Entry
from nedura.update.source.git import Git

__all__ = ["RECORD", "CheckoutBuilds", "wanted_builds"]

RECORD: Final = "builds.json"
"""Beside the install: build name -> hash of the inputs that its artifact was made from; empty text for one that failed."""


def read_made(state: Path) -> dict[str, str]:
    """What was built, by name; a record that is gone or damaged says that everything has to be built."""
    try:
        value = read_json(state / RECORD)
    except (RecordMissing, StoreError):
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def wanted_builds(builds: Sequence[Build], checkout: Path, root_home: Path, state: Path) -> list[str]:
    """Builds that this install has, by artifact, stamp or an earlier try; asked before the move that could lose them."""
    made = read_made(state)
    return [
        build.name
        for build in builds
        if not build.stamp
        or build.name in made
        or leaves_trace(checkout / build.artifact)
        or (root_home / build.stamp).exists()
    ]


class CheckoutBuilds:
    """The builds of one checkout.

    Args:
        paths: the install.
        git: its repository.
        checkout: the working tree.
        commit: what is checked out.
        environ: where children's variables come from.
    """

    def __init__(
        self, paths: InstallPaths, git: Git, checkout: Path, commit: str, environ: Mapping[str, str]
    ) -> None:
        self._paths = paths
        self._git = git
        self._checkout = checkout
        self._commit = commit
        self._environ = environ
        self._tree = ""
        self._entries: list[Entry] = []

    def decide(
        self, builds: Sequence[Build], roots: Sequence[str], wanted: Collection[str]
    ) -> list[Decision]:
        """What to do with each build.

        Args:
            builds: the product's.
            roots: its import roots.
            wanted: from `wanted_builds`.

        Raises:
            UpdateError: the commit cannot be read or its tree breaks a rule.
        """
        self._tree = self._git.run("rev-parse", "--verify", f"{self._commit}^{{tree}}").text
        self._entries = list_tree(self._git, self._tree, roots)
        return decide_builds(
            builds,
            self._entries,
            artifacts={b.name: is_artifact(self._checkout / b.artifact) for b in builds},
            stamps={b.name: b.name in wanted for b in builds},
            current=read_made(self._paths.folder),
        )

    def make(self, decision: Decision, now: float) -> None:
        """Build, put the artifact in place of the old one, then record and stamp it. The old one stays when anything fails.

        Args:
            decision: a `run`.
            now: unix seconds.

        Raises:
            UpdateError: the build failed.
            StoreError, OSError: the disk refused.
        """
        build = decision.build
        self._record(build.name, "")  # a failed or killed build stays wanted
        with built(
            build, self._git, self._tree, self._entries, self._paths.folder, sys.executable, self._environ
        ) as made:
            swap_in(made, inside(self._checkout, build.artifact))
        if build.stamp:
            place = self._paths.root_home / build.stamp
            make_folder(place.parent)
            fields: dict[str, Any] = {"inputs": decision.inputs, "commit": self._commit, "name": build.name}
            write_json(place, {**fields, "at": iso(now)})
        self._record(build.name, decision.inputs)

    def _record(self, name: str, inputs: str) -> None:
        write_json(self._paths.folder / RECORD, {**read_made(self._paths.folder), name: inputs})


def swap_in(made: Path, target: Path) -> None:
    """Put an artifact in place by two renames beside it; the old one comes back when the second fails."""
    make_folder(target.parent, 0o755 & ~own_umask())
    mark = secrets.token_hex(4)
    staged, old = (target.with_name(f".{target.name}.{word}-{mark}") for word in ("staging", "previous"))
    try:
        if made.is_dir():
            shutil.copytree(made, staged, symlinks=True)
        else:
            shutil.copy2(made, staged, follow_symlinks=False)
        had = os.path.lexists(target)
        if had:
            os.rename(target, old)
        try:
            os.rename(staged, target)
        except OSError:
            if had:
                os.rename(old, target)
            raise
    finally:
        for rest in (staged, old):
            drop(rest)
