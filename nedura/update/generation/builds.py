"""Declared builds of a tree (web page, desktop app): which are wanted, which can be taken over, which must run. Pure (decision 42)."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

from nedura.product import Build
from nedura.update.generation.tree_rules import Entry

__all__ = ["Decision", "build_inputs", "decide_builds", "is_wanted"]


@attrs.frozen(kw_only=True)
class Decision:
    """What to do with one build.

    Attributes:
        build: the build.
        action: run it, take the artifact over from what is current, or leave it out.
        inputs: hash of its inputs.
        reason: why, for the receipt.
    """

    build: Build
    action: Literal["run", "reuse", "skip"]
    inputs: str
    reason: str


def _matches(path: str, pattern: str) -> bool:
    return path == pattern or path.startswith(pattern.rstrip("/") + "/") or fnmatch.fnmatchcase(path, pattern)


def build_inputs(build: Build, entries: Iterable[Entry]) -> str:
    """Hash of a build's inputs: command, and mode and content of every matching file; no file is read."""
    digest = hashlib.sha256("\0".join((build.name, *build.command, build.artifact)).encode())
    for entry in sorted(entries, key=lambda e: e.path):
        if any(_matches(entry.path, pattern) for pattern in build.inputs):
            digest.update(f"\0{entry.mode} {entry.oid} {entry.path}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def is_wanted(build: Build, *, artifact_present: bool, stamp_present: bool) -> bool:
    """Whether an install has a build: every install has one without a stamp; else its artifact or its stamp says so.

    The stamp survives an update that lost the artifact, so that the next one rebuilds it instead of forgetting it (#90495).
    """
    return not build.stamp or artifact_present or stamp_present


def decide_builds(
    builds: Sequence[Build],
    entries: Sequence[Entry],
    *,
    artifacts: Mapping[str, bool],
    stamps: Mapping[str, bool],
    current: Mapping[str, str],
) -> list[Decision]:
    """Decide every build of a candidate.

    Args:
        builds: the product's builds.
        entries: the candidate's tree.
        artifacts: build name -> its artifact is in the current tree.
        stamps: build name -> its stamp is in the root home.
        current: build name -> hash of the inputs that the current artifact was made from.
    """
    decisions = []
    for build in builds:
        inputs = build_inputs(build, entries)
        present = artifacts.get(build.name, False)
        if not is_wanted(build, artifact_present=present, stamp_present=stamps.get(build.name, False)):
            decisions.append(
                Decision(build=build, action="skip", inputs=inputs, reason="this install never had it")
            )
        elif present and current.get(build.name) == inputs:
            decisions.append(
                Decision(build=build, action="reuse", inputs=inputs, reason="its inputs are the same")
            )
        else:
            reason = "its inputs changed" if present else "its artifact is missing"
            decisions.append(Decision(build=build, action="run", inputs=inputs, reason=reason))
    return decisions
