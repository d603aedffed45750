"""A tree of files from git objects by id, unchanged files and their bytecode linked from the generation before."""

from __future__ import annotations

import contextvars
import os
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

from nedura.errors import UpdateError
from nedura.programs import child_environment
from nedura.records import make_folder
from nedura.text import clean
from nedura.update.bounded import run_bounded
from nedura.update.generation.interpreter import Interpreter
from nedura.update.generation.tree_files import Base, folder_handle, link_entries, link_name
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

__all__ = ["Laid", "compile_tree", "list_tree", "materialise", "rewrite"]

P = ParamSpec("P")
T = TypeVar("T")
COMPLETE: Final = "."
"""Last word of a compiler that did all of its share."""
WORKER: Final = Path(__file__).with_name("compile_worker.py")


class Laid(NamedTuple):
    """How a tree came to be.

    Attributes:
        written: paths of the files that were written, not linked.
        proven: paths of linked files that this run has read already.
    """

    written: set[str]
    proven: set[str]


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
) -> Laid:
    """Write a tree into a folder that does not exist yet.

    Args:
        git: our repository.
        tree: tree id.
        entries: its files, from `list_tree`.
        folder: where to.
        scratch: folder for the temporary index.
        base: generation to link from.

    Raises:
        UpdateError: git or the disk refused.
    """
    files: Mapping[str, tuple[str, str]] = base.files if base is not None else {}
    same = [entry for entry in entries if files.get(entry.path) == (entry.mode, entry.oid)]
    linked = {entry.path for entry in same}
    others = [entry.path for entry in entries if entry.path not in linked]
    try:
        make_folder(folder)
        for name in sorted({e.path.rpartition("/")[0] for e in entries} - {""}):
            os.makedirs(folder / name, 0o700, exist_ok=True)
        with ThreadPoolExecutor(1) as beside:  # git writes while we link; its end is waited for in any case
            writing = _beside(beside, _check_out, git, tree, others, folder, scratch) if others else None
            failed, proven = link_entries(base, same, folder) if base is not None else ([], set[str]())
            if writing is not None:
                writing.result()
    except OSError as error:
        raise UpdateError(
            f"The new version cannot be written: {error.strerror}.", stop_class="disk"
        ) from error
    if failed:
        _check_out(git, tree, failed, folder, scratch)
    return Laid({*others, *failed}, proven)


def _beside(pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run something in a pool's thread so that a cancelled update ends its programs, too."""
    context = contextvars.copy_context()
    return pool.submit(lambda: context.run(work, *args, **kwargs))


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
    new: list[str] = []
    same: list[str] = []
    for path in paths:
        (new if usable is None or path in written else same).append(path)
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        jobs = _shared(pool, folder, new, python, environ, timeout, workers)
        rest = _link_bytecode(usable, folder, same, python.tag) if usable is not None else []
        jobs += _shared(pool, folder, rest, python, environ, timeout, workers)
        for job in jobs:
            failed.update(job.result())
    return failed


def _shared(
    pool: ThreadPoolExecutor,
    folder: Path,
    todo: Sequence[str],
    python: Interpreter,
    environ: Mapping[str, str] | None,
    timeout: float,
    workers: int,
) -> list[Future[dict[str, str]]]:
    """Hand files to compilers: as many as are worth their start."""
    count = max(1, min(workers, len(todo) // 40 + 1))
    shares = [todo[start::count] for start in range(count)]
    return [
        _beside(pool, _compile_share, folder, share, python, environ, timeout) for share in shares if share
    ]


def _link_bytecode(base: Base, folder: Path, paths: Iterable[str], tag: str) -> list[str]:
    """Take over bytecode of the files that are the base's own: same time stamp and size, so it stays valid. Return the rest."""
    rest, made = [], set()
    try:
        with folder_handle(base.tree) as source, folder_handle(folder) as target:
            for path in paths:
                parent, _, name = path.rpartition("/")
                cache = f"{parent}/__pycache__".lstrip("/")
                if cache not in made:
                    os.makedirs(f"{folder}/{cache}", 0o700, exist_ok=True)
                    made.add(cache)
                if not link_name(source, target, f"{cache}/{name.removesuffix('.py')}.{tag}.pyc"):
                    rest.append(path)
    except OSError as error:
        raise UpdateError(
            f"The new version cannot be written: {error.strerror}.", stop_class="disk"
        ) from error
    return rest


def _compile_share(
    folder: Path, share: Sequence[str], python: Interpreter, environ: Mapping[str, str] | None, timeout: float
) -> dict[str, str]:
    try:
        answer = run_bounded(
            [python.path, "-I", "-S", "-B", str(WORKER)],
            env=child_environment(environ),
            cwd=folder,
            stdin="\0".join(share).encode("utf-8", "surrogateescape"),
            timeout=timeout,
            sweep=True,
        )
        told = answer.out.decode("utf-8", "surrogateescape").split("\0") if answer.code == 0 else []
    except OSError:
        told = []
    if not told or told.pop() != COMPLETE or len(told) % 2:
        raise UpdateError(
            "The new version cannot be compiled: the compiler ended early.", stop_class="compile"
        )
    return {name: clean(message) for name, message in zip(told[::2], told[1::2], strict=True)}
