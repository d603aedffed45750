"""A tree of files from git objects by id, unchanged files and their bytecode linked from the generation before."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.programs import child_environment
from nedura.records import make_folder
from nedura.text import clean
from nedura.update.bounded import run_bounded
from nedura.update.generation.interpreter import Interpreter
from nedura.update.generation.tree_rules import (
    Entry,
    check_entries,
    check_link,
    check_start_hooks,
    left_out,
    needs_lfs,
    parse_listing,
)
from nedura.update.source.git import Git

__all__ = ["Base", "Files", "compile_tree", "hash_files", "list_tree", "materialise", "rewrite"]

Files = dict[str, tuple[str, str]]
"""path -> (git mode, blob id)."""
WORKER: Final = Path(__file__).with_name("compile_worker.py")


@attrs.frozen(kw_only=True)
class Base:
    """The generation that unchanged files are linked from."""

    tree: Path
    files: Mapping[str, tuple[str, str]]
    tag: str


def list_tree(git: Git, tree: str, roots: Sequence[str] = ("",), *, submodules: bool = False) -> list[Entry]:
    """All files of a tree, judged; bytecode left out.

    Raises:
        UpdateError: an entry breaks a rule of threats.md 1, or needs git-lfs.
    """
    entries = parse_listing(git.run("ls-tree", "-r", "-l", "-z", "--full-tree", tree).out)
    check_entries(entries, submodules=submodules)
    check_start_hooks(entries, roots)
    entries = [entry for entry in entries if entry.mode != "160000" and not left_out(entry.path)]
    _check_blobs(git, entries)
    return entries


def _check_blobs(git: Git, entries: Iterable[Entry]) -> None:
    """Rules that need content: where links point, and who asks for git-lfs."""
    special = [e for e in entries if e.mode == "120000" or e.path.rpartition("/")[2] == ".gitattributes"]
    if not special:
        return
    contents = read_blobs(git, [entry.oid for entry in special])
    for entry in special:
        if entry.mode == "120000":
            check_link(entry.path, contents[entry.oid].decode("utf-8", "surrogateescape"))
    attributes = {e.path: contents[e.oid].decode("utf-8", "replace") for e in special if e.mode != "120000"}
    asking = needs_lfs(attributes)
    if asking:
        raise UpdateError(
            f"The new version needs git-lfs ({clean(asking)}), which is not fetched.", stop_class="tree"
        )


def read_blobs(git: Git, oids: Sequence[str], limit: int = 1 << 20) -> dict[str, bytes]:
    """Content of blobs by id.

    Raises:
        UpdateError: one is missing or larger than `limit` bytes.
    """
    out = git.run("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode()).out
    contents, position = {}, 0
    for oid in oids:
        end = out.index(b"\n", position)
        fields = out[position:end].split()
        if len(fields) != 3 or fields[1] != b"blob" or int(fields[2]) > limit:
            raise UpdateError(f"The object {oid} is missing or too large.", stop_class="git")
        size = int(fields[2])
        contents[oid] = out[end + 1 : end + 1 + size]
        position = end + 1 + size + 1
    return contents


def materialise(
    git: Git, tree: str, entries: Sequence[Entry], folder: Path, scratch: Path, base: Base | None = None
) -> set[str]:
    """Write a tree into a folder that does not exist yet.

    Args:
        git: our repository.
        tree: tree id.
        entries: its files, from `list_tree`.
        folder: where to.
        scratch: folder for the temporary index.
        base: generation to link from.

    Returns:
        paths of the files that were written, not linked.

    Raises:
        UpdateError: git or the disk refused.
    """
    try:
        make_folder(folder)
        for name in sorted({e.path.rpartition("/")[0] for e in entries} - {""}):
            os.makedirs(folder / name, 0o700, exist_ok=True)
        others = _link_unchanged(entries, folder, base)
    except OSError as error:
        raise UpdateError(
            f"The new version cannot be written: {error.strerror}.", stop_class="disk"
        ) from error
    if others:
        _check_out(git, tree, others, folder, scratch)
    return set(others)


def _link_unchanged(entries: Sequence[Entry], folder: Path, base: Base | None) -> list[str]:
    """Link what is the same in the base; return the rest."""
    if base is None:
        return [entry.path for entry in entries]
    return [
        entry.path
        for entry in entries
        if base.files.get(entry.path) != (entry.mode, entry.oid) or not _link(base.tree, folder, entry.path)
    ]


def _link(source: Path, target: Path, name: str) -> bool:
    """Hard-link one file from generation to generation; False where it must be written instead (EPERM, EMLINK, EXDEV, gone)."""
    try:
        os.link(f"{source}/{name}", f"{target}/{name}", follow_symlinks=False)
    except OSError:
        return False
    return True


def _check_out(git: Git, tree: str, paths: Sequence[str], folder: Path, scratch: Path) -> None:
    index = scratch / f".tmp.index.{secrets.token_hex(6)}"
    plain = ("-c", "core.sparseCheckout=false", "-c", "core.symlinks=true", "-c", "core.autocrlf=false")
    try:
        git.run(*plain, "read-tree", tree, index=index, work_tree=folder)
        git.run(
            *plain, "-c", "checkout.workers=2", "-c", "checkout.thresholdForParallelism=100",
            "checkout-index", "-z", "--stdin", "-q",
            index=index, work_tree=folder, stdin="\0".join(paths).encode("utf-8", "surrogateescape") + b"\0",
        )  # fmt: skip
    finally:
        for leftover in (index, index.with_name(index.name + ".lock")):
            leftover.unlink(missing_ok=True)


def rewrite(git: Git, tree: str, entries: Sequence[Entry], folder: Path, scratch: Path) -> None:
    """Replace files that must not be the base's: their names are removed, then written afresh.

    Raises:
        UpdateError: git or the disk refused.
    """
    for entry in entries:
        Path(folder, entry.path).unlink(missing_ok=True)
    _check_out(git, tree, [entry.path for entry in entries], folder, scratch)


def hash_files(folder: Path, entries: Sequence[Entry]) -> dict[str, str]:
    """Blob ids of what is on disk, by path; a file that is missing or of another kind has the id `missing`."""
    algorithm = "sha256" if entries and len(entries[0].oid) == 64 else "sha1"

    def one(entry: Entry) -> tuple[str, str]:
        try:
            if entry.mode == "120000":
                data = os.fsencode(os.readlink(f"{folder}/{entry.path}"))
            else:
                handle = os.open(f"{folder}/{entry.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(handle, "rb") as file:
                    data = file.read()
        except OSError:
            return entry.path, "missing"
        return entry.path, hashlib.new(algorithm, b"blob %d\0" % len(data) + data).hexdigest()

    return dict(map(one, entries))


def compile_tree(
    folder: Path,
    paths: Iterable[str],
    python: Interpreter,
    base: Base | None,
    environ: Mapping[str, str] | None = None,
    *,
    written: Container[str] = (),
    workers: int = 2,
    timeout: float = 1800.0,
) -> dict[str, str]:
    """Compile the Python files of a tree in place; bytecode of linked files is linked too.

    Args:
        folder: the tree.
        paths: its Python files.
        python: who will run it.
        base: generation to link bytecode from.
        environ: where children's variables come from.
        written: files that are not the base's own by a link; their bytecode must be new.
        workers: processes at once.
        timeout: seconds for all of it.

    Returns:
        path -> message of the files that do not compile.

    Raises:
        UpdateError: a compiler died or ran out of time.
    """
    usable = base if base is not None and base.tag == python.tag else None
    todo = _link_bytecode(folder, paths, usable, python.tag, written)
    workers = max(1, min(workers, len(todo) // 40 + 1))
    shares = [todo[start::workers] for start in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(lambda share: _compile_share(folder, share, python, environ, timeout), shares)
        return {path: message for result in results for path, message in result}


def _link_bytecode(
    folder: Path, paths: Iterable[str], base: Base | None, tag: str, written: Container[str]
) -> list[str]:
    """Take over bytecode of the files that are the base's own: same time stamp and size, so it stays valid. Return the rest."""
    rest, made = [], set()
    for path in paths:
        parent, _, name = path.rpartition("/")
        cache = f"{parent}/__pycache__".lstrip("/")
        if base is None or path in written:
            rest.append(path)
            continue
        if cache not in made:
            os.makedirs(f"{folder}/{cache}", 0o700, exist_ok=True)
            made.add(cache)
        if not _link(base.tree, folder, f"{cache}/{name.removesuffix('.py')}.{tag}.pyc"):
            rest.append(path)
    return rest


def _compile_share(
    folder: Path, share: Sequence[str], python: Interpreter, environ: Mapping[str, str] | None, timeout: float
) -> list[tuple[str, str]]:
    if not share:
        return []
    try:
        answer = run_bounded(
            [python.path, "-I", "-S", "-B", str(WORKER)],
            env=child_environment(environ),
            cwd=folder,
            stdin="\0".join(share).encode("utf-8", "surrogateescape"),
            timeout=timeout,
            sweep=True,
        )
        failed = json.loads(answer.out) if answer.code == 0 else None
    except (ValueError, OSError):
        failed = None
    if failed is None:
        raise UpdateError(
            "The new version cannot be compiled: the compiler ended early.", stop_class="compile"
        )
    return [(str(name), clean(message)) for name, message in failed]
