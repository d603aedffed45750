"""One generation built aside, step by step; the installer and prepare share these steps. Blocking: async code uses threads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from nedura.clock import iso
from nedura.errors import UpdateError
from nedura.installs import CodeIdentity, InstallPaths
from nedura.product import Product
from nedura.records import make_folder
from nedura.text import clean
from nedura.update.generation.environment import discard
from nedura.update.generation.generations import (
    Manifest,
    base_of,
    code_version,
    next_generation,
    seal,
)
from nedura.update.generation.interpreter import Interpreter
from nedura.update.generation.thin import python_of, write_venv
from nedura.update.generation.tree import compile_tree, list_tree, materialise, rewrite
from nedura.update.generation.tree_files import Base, Seen, hash_files
from nedura.update.generation.tree_rules import Entry
from nedura.update.run import Candidate
from nedura.update.source.git import Git
from nedura.update.source.repository import generation_ref
from nedura.update.state.levels import state_range

__all__ = ["Building", "abandon", "inputs_hash", "requires_python", "start", "tree_text"]


@attrs.frozen(kw_only=True)
class Inputs:
    """Everything a generation is made from (decision 40).

    Attributes:
        commit: commit id.
        tree: tree id, carried edits included.
        edits: path -> blob id of carried edits.
        parked: path -> blob id of edits that were left out.
        env: environment's hash, or empty.
        python: base interpreter.
        builds: build name -> hash of its inputs.
        packages: host folders of packages.
        states: commit id that the code states about itself, where that is another one (a release's, imported by us); else empty.
    """

    commit: str
    tree: str
    python: Interpreter
    edits: Mapping[str, str] = attrs.field(factory=dict)
    parked: Mapping[str, str] = attrs.field(factory=dict)
    env: str = ""
    builds: Mapping[str, str] = attrs.field(factory=dict)
    packages: tuple[str, ...] = ()
    states: str = ""


def inputs_hash(inputs: Inputs) -> str:
    """Hash of the inputs: equal means that a build would make the same generation."""
    parts = [
        inputs.commit, inputs.tree, sorted(inputs.edits.items()), sorted(inputs.parked.items()), inputs.env, list(inputs.python[:3]),
        sorted(inputs.builds.items()), list(inputs.packages),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def tree_text(git: Git, tree: str, path: str, limit: int = 1 << 20) -> bytes | None:
    """Content of one file of a tree; None when it has none of that name.

    Raises:
        UpdateError: it is larger than `limit` bytes.
    """
    answer = git.run("cat-file", "--batch", stdin=f"{tree}:{path}\n".encode(), ok=(0,))
    head, _, rest = answer.out.partition(b"\n")
    fields = head.split()
    if len(fields) != 3 or fields[1] != b"blob":
        return None
    size = int(fields[2])
    if size > limit:
        raise UpdateError(f"{clean(path)} of the new version is too large.", stop_class="tree")
    return rest[:size]


def requires_python(pyproject: bytes | None) -> str:
    """requires-python of a project table; empty when it states none."""
    import tomllib

    if pyproject is None:
        return ""
    try:
        stated = tomllib.loads(pyproject.decode("utf-8")).get("project", {}).get("requires-python", "")
    except (ValueError, AttributeError):
        return ""
    return stated if isinstance(stated, str) else ""


@attrs.define(kw_only=True)
class Building:
    """A generation on its way. Call `files`, `bytecode` and `finish` in this order; `abandon` on any failure.

    Attributes:
        paths: the install.
        git: its repository.
        product: whose tree it is.
        inputs: what it is made from.
        folder: final path.
        base: generation to link from.
        environ: where children's variables come from.
        entries: files of the tree, once listed.
        written: files that were not linked.
        converted: files whose line ends git converted: path -> blob id of what is on disk.
        broken: files that do not compile.
        built: files that builds made.
        repaired: files of the base that were not what its manifest says.
    """

    paths: InstallPaths
    git: Git
    product: Product
    inputs: Inputs
    folder: Path
    base: Base | None = None
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    entries: list[Entry] = attrs.field(factory=list)
    written: set[str] = attrs.field(factory=set)
    converted: dict[str, str] = attrs.field(factory=dict)
    broken: dict[str, str] = attrs.field(factory=dict)
    built: dict[str, str] = attrs.field(factory=dict)
    repaired: tuple[str, ...] = ()

    @property
    def tree(self) -> Path:
        """Where its files are."""
        return self.folder / "tree"

    def files(self) -> None:
        """Write the tree, then read every byte back and compare it with the tree's own ids.

        Raises:
            UpdateError: a rule is broken, the disk refused, or the bytes differ.
        """
        make_folder(self.paths.generations)
        if not self.entries:
            self.entries = list_tree(self.git, self.inputs.tree, self.product.roots)
        self.git.run("update-ref", generation_ref(self.folder.name), self.inputs.commit)
        laid = materialise(self.git, self.inputs.tree, self.entries, self.tree, self.paths.folder, self.base)
        self.written = laid.written
        self._read_back([entry for entry in self.entries if entry.path not in laid.proven])

    def _read_back(self, unread: Sequence[Entry]) -> None:
        """Compare every byte that was not read yet; what was linked from a changed generation is written afresh."""
        found = hash_files(self.tree, unread)
        linked = [e for e in unread if found[e.path] != e.oid and e.path not in self.written]
        if linked:
            self.repaired = tuple(e.path for e in linked)
            rewrite(self.git, self.inputs.tree, linked, self.tree, self.paths.folder)
            self.written.update(self.repaired)
            found.update(hash_files(self.tree, linked))
        differing = {e.path: found[e.path] for e in unread if found[e.path] != e.oid}
        converting = any(e.path.rpartition("/")[2] == ".gitattributes" for e in self.entries)
        if differing and (not converting or "missing" in differing.values()):
            shown = ", ".join(clean(path, 80) for path in sorted(differing)[:3])
            raise UpdateError(
                f"Files of the new version are not what its commit says: {shown}.", stop_class="verify"
            )
        self.converted = differing

    def bytecode(self, workers: int = 2) -> None:
        """Compile what was written; bytecode of linked files is linked.

        Raises:
            UpdateError: the compiler died.
        """
        sources = [e.path for e in self.entries if e.path.endswith(".py") and e.mode != "120000"]
        self.broken = compile_tree(
            self.tree,
            sources,
            self.inputs.python,
            self.base,
            self.environ,
            written=self.written,
            workers=workers,
        )

    def venv(self) -> None:
        """Write the thin virtual environment."""
        write_venv(self.folder, self.inputs.python, self.product.roots, self.inputs.env, self.inputs.packages)

    def finish(self, now: float, branch: str = "") -> Candidate:
        """Seal it: read-only, durable, manifest last.

        Args:
            now: unix seconds.
            branch: branch that was followed.

        Raises:
            UpdateError, StoreError: the disk refused.
        """
        identity = CodeIdentity(
            install_id=self.paths.install_id,
            generation=self.folder.name,
            code_sha=self.inputs.states or self.inputs.commit,
            code_version=code_version(self.tree),
            tree_hash=self.inputs.tree,
        )
        inputs = inputs_hash(self.inputs)
        state = state_range(self.tree, self.product.command)
        manifest = Manifest(
            identity=identity,
            env=self.inputs.env,
            python=self.inputs.python._asdict(),
            inputs=inputs,
            files={e.path: (e.mode, e.oid) for e in self.entries},
            written=self.converted,
            edits=self.inputs.edits,
            parked=self.inputs.parked,
            builds=self.inputs.builds,
            built=self.built,
            broken=self.broken,
            branch=branch,
            created=iso(now),
            state_min=state.state_min,
            state_max=state.state_max,
        )
        seal(self.folder, manifest)
        return Candidate(
            layout="sealed",
            identity=identity,
            folder=self.folder,
            tree=self.tree,
            python=python_of(self.folder),
            inputs=inputs,
            target=self.inputs.commit,
        )


def start(
    paths: InstallPaths,
    git: Git,
    product: Product,
    inputs: Inputs,
    environ: Mapping[str, str],
    entries: Sequence[Entry] = (),
    seen: Mapping[str, Seen] | None = None,
) -> Building:
    """Begin a generation at its final path, linking from what is current.

    Args:
        paths: the install.
        git: its repository.
        product: whose tree it is.
        inputs: what it is made from.
        environ: where children's variables come from.
        entries: files of the tree, once listed.
        seen: what this run has read of what is current.

    Raises:
        StoreError: the pointer is damaged.
    """
    base = base_of(paths.pointed())
    return Building(
        paths=paths,
        git=git,
        product=product,
        inputs=inputs,
        folder=next_generation(paths),
        base=attrs.evolve(base, seen=seen) if base is not None and seen else base,
        environ=environ,
        entries=list(entries),
    )


def abandon(building: Building) -> None:
    """Remove what a failed build left, its ref included.

    Raises:
        UpdateError: the system refused.
    """
    discard(building.folder)
    building.git.run("update-ref", "-d", generation_ref(building.folder.name), ok=(0, 1, 128))
