"""Local edits of the source, carried by a three-way merge in our own repository (decision 41, generations.md 2).

The source is only read: git works on our repository, with the source as its work tree and a copy of its index. No filter, driver
or hook of the source is known there.
"""

from __future__ import annotations

import contextvars
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs

from nedura.errors import StoreError, UpdateError
from nedura.records import make_folder, write_new
from nedura.text import clean, counted
from nedura.update.generation.environment import discard
from nedura.update.source.edit_content import UNREADABLE, exposed_paths, unfit_changes, unfit_files
from nedura.update.source.edit_rules import (
    MAX_COUNT,
    Change,
    LeftOut,
    is_own,
    judge_change,
    judge_untracked,
    parse_raw_diff,
)
from nedura.update.source.git import Git, is_commit_id
from nedura.update.source.owner_checkout import Source

__all__ = ["Edits", "blob_of", "diff_trees", "read_edits"]

MAX_INDEX: Final = 512 << 20
_SHARED: Final = re.compile(r"sharedindex\.[0-9a-f]{40,64}\Z")
_UNTRACKED: Final = ("ls-files", "-o", "-z", "--exclude-standard")


@attrs.frozen(kw_only=True)
class Edits:
    """What differs between the source's files and its commit.

    Attributes:
        base: commit id that is checked out.
        tree: tree id with all edits that may travel; equal to the base's tree when there are none.
        files: path -> blob id, empty for a deletion.
        left: edits that do not travel.
    """

    base: str
    tree: str
    files: Mapping[str, str] = attrs.field(factory=dict)
    left: tuple[LeftOut, ...] = ()


@attrs.frozen
class _Reader:
    """git on our repository with the source as its work tree and a temporary index."""

    git: Git
    source: Source
    index: Path
    options: tuple[str, ...]
    copied: bool

    def run(self, *args: str, stdin: bytes | None = None) -> bytes:
        return self.git.run(
            *self.options, *args, stdin=stdin, index=self.index, work_tree=self.source.checkout, timeout=300
        ).out


def _options(source: Source, scratch: Path) -> tuple[str, ...]:
    """Settings of the source that are plain data: what to ignore, line ends, whether modes count."""
    values = dict(source.settings)
    options = ["-c", "core.sparseCheckout=false", "-c", f"core.excludesFile={_excludes(source, scratch)}"]
    if values.get("core.autocrlf", "").lower() in ("true", "input"):
        options += ["-c", "core.autocrlf=input", "-c", "core.safecrlf=false"]
    if values.get("core.filemode", "").lower() == "false":
        options += ["-c", "core.fileMode=false"]
    return tuple(options)


def _excludes(source: Source, scratch: Path) -> Path:
    """One file of ignore rules: the checkout's own and the owner's default global ones."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    data = b""
    for path in (Path(config) / "git" / "ignore", source.common_dir / "info" / "exclude"):
        try:
            with open(path, "rb") as file:
                data += file.read(1 << 20) + b"\n"
        except OSError:
            continue
    target = scratch.with_name(f"{scratch.name}.exclude")
    try:
        write_new(target, data)
    except OSError as error:
        raise StoreError(
            f"{clean(str(target.parent), 300)} cannot be written: {error.strerror}.",
            advice="Check its owner, its permissions and the free space.",
        ) from error
    return target


@contextmanager
def _reader(git: Git, source: Source, folder: Path) -> Iterator[_Reader]:
    index = folder / f".tmp.edits.{secrets.token_hex(6)}"
    try:
        copied = _copy_index(source, index) and _join_split(git, source, index)
        yield _Reader(git, source, index, _options(source, index), copied)
    finally:
        for leftover in (
            index,
            index.with_name(f"{index.name}.lock"),
            index.with_name(f"{index.name}.exclude"),
        ):
            leftover.unlink(missing_ok=True)


def _copy_index(source: Source, index: Path) -> bool:
    """A copy of the source's index keeps its stat cache, so that only changed files are read; False where there is none.

    Its own time is kept, too: git takes a file that changed in the second of the index (or later) for one to look into.
    """
    try:
        with open(source.git_dir / "index", "rb") as file:
            info = os.fstat(file.fileno())
            write_new(index, file.read(MAX_INDEX))
        os.utime(index, ns=(info.st_atime_ns, info.st_mtime_ns))
    except OSError:
        index.unlink(missing_ok=True)
        return False
    return True


def _join_split(git: Git, source: Source, index: Path) -> bool:
    """A split index is one with its shared part, which git looks for in its own folder: join them; False when they cannot be."""
    shared = [name for name in os.listdir(source.git_dir) if _SHARED.match(name)]
    if not shared:
        return True
    own = make_folder(index.with_name(f"{index.name}.git"))
    try:
        write_new(own / "HEAD", b"ref: refs/heads/main\n")
        write_new(own / "commondir", os.fsencode(git.repo) + b"\n")
        for name in shared:
            write_new(own / name, _bytes_of(source.git_dir / name))
        joined = git.run(
            "update-index", "--no-split-index", index=index, extra={"GIT_DIR": str(own)}, ok=range(256)
        )
    except OSError:
        return False
    finally:
        discard(own)
    if joined.code != 0:
        index.unlink(missing_ok=True)
    return joined.code == 0


def _bytes_of(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_INDEX)


def _usable_index(reader: _Reader) -> None:
    """See that the index is one: what was copied, else one made from the commit.

    Raises:
        UpdateError: a merge is half done in the source, or git failed.
    """
    if reader.copied:
        listed = reader.git.run("ls-files", "-u", "-z", index=reader.index, ok=range(256))
        if listed.code == 0 and listed.out:
            raise UpdateError(
                "The source is in the middle of a merge.",
                stop_class="local_changes_blocked",
                advice=f"Finish it or abort it in {clean(str(reader.source.checkout), 200)}, then try again.",
            )
        if listed.code == 0:
            return
        reader.index.unlink(missing_ok=True)
    reader.git.run("read-tree", reader.source.head, index=reader.index)
    if (reader.source.git_dir / "info" / "sparse-checkout").is_file():
        # which files are missing on purpose only the lost index knew: none of them is taken for a deletion
        missing = reader.run("ls-files", "-d", "-z")
        reader.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=missing)


def _untouched(reader: _Reader, untracked: bool) -> str:
    """Tree id of a source without any edit, by questions that are asked at the same time; empty when there may be one."""
    if not reader.copied or not reader.source.head:
        return ""
    head = reader.source.head
    changed = (
        "diff-index",
        "-z",
        "--raw",
        "--no-renames",
        "--no-ext-diff",
        "--ignore-submodules=dirty",
        head,
        "--",
    )
    questions = [changed, ("rev-parse", "--verify", f"{head}^{{tree}}"), *([_UNTRACKED] if untracked else [])]

    def ask(question: tuple[str, ...]) -> bytes | None:
        answer = reader.git.run(
            *reader.options, *question, index=reader.index, work_tree=reader.source.checkout, timeout=300, ok=range(256)
        )  # fmt: skip
        return answer.out if answer.code == 0 else None

    with ThreadPoolExecutor(
        len(questions)
    ) as pool:  # a context of its own for each: a cancelled update ends all of them
        jobs = [pool.submit(contextvars.copy_context().run, ask, question) for question in questions]
        answers = [job.result() for job in jobs]
    tree = (answers.pop(1) or b"").decode("ascii", "replace").strip()
    return tree if is_commit_id(tree) and all(answer == b"" for answer in answers) else ""


def read_edits(git: Git, source: Source, scratch: Path, *, untracked: bool = True) -> Edits:
    """Edits of the source: tracked, staged and (unless told otherwise) untracked files that are not ignored.

    Args:
        git: our repository.
        source: the checkout.
        scratch: folder for temporary files.
        untracked: False when the root home lies in the checkout: product state must not be taken for edits.

    Raises:
        UpdateError: a merge is half done in the source, or git failed.
        StoreError: the scratch folder cannot be written.
    """
    if not source.head:
        return Edits(
            base="", tree="", left=(LeftOut(path=".", reason="the source's branch has no commit yet"),)
        )
    with _reader(git, source, scratch) as reader:
        untouched = _untouched(reader, untracked)
        if untouched:
            return Edits(base=source.head, tree=untouched)
        _usable_index(reader)
        left: list[LeftOut] = []
        left += _add_tracked(reader)
        if untracked:
            left += _add_untracked(reader)
        tree = reader.run("write-tree").decode().strip()
        changes = diff_trees(git, source.head, tree)
        unfit = unfit_changes(git, changes) | exposed_paths(source.checkout, (c.path for c in changes))
        refused = [c for c in changes if is_own(c.path) or judge_change(c) or c.path in unfit]
        if refused:
            left += [
                LeftOut(path=c.path, reason=judge_change(c) or unfit[c.path])
                for c in refused
                if not is_own(c.path)
            ]
            _put_back(reader, refused)
            tree = reader.run("write-tree").decode().strip()
            changes = [c for c in changes if c not in refused]
    return Edits(base=source.head, tree=tree, files={c.path: blob_of(c) for c in changes}, left=tuple(left))


def blob_of(change: Change) -> str:
    """Blob id of the new side; empty for a deletion."""
    return "" if change.new_mode == "000000" else change.new


def diff_trees(git: Git, base: str, tree: str) -> list[Change]:
    """What differs between two trees or commits."""
    return parse_raw_diff(
        git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", base, tree).out
    )


def _add_tracked(reader: _Reader) -> list[LeftOut]:
    """Take up what was changed in tracked files, but for what must not be read at all."""
    changed = reader.run("diff-files", "-z", "--name-only", "--ignore-submodules=all", "--no-ext-diff")
    names = changed.decode("utf-8", "surrogateescape").split("\0")
    left = unfit_files(reader.source.checkout, filter(None, names))
    reader.run("add", "-u", "--", ".", *(f":(exclude,literal){item.path}" for item in left))
    return left


def _add_untracked(reader: _Reader) -> list[LeftOut]:
    listed = reader.run(*_UNTRACKED).decode("utf-8", "surrogateescape")
    names = [name for name in listed.split("\0") if name and not is_own(name.rstrip("/"))]
    if len(names) > MAX_COUNT:
        return [
            LeftOut(
                path=counted(len(names), "untracked file"), reason=f"more than {MAX_COUNT} are not carried"
            )
        ]
    left, taken, total = [], [], 0
    for name in names:
        kind, size = _look(reader.source.checkout / name)
        why = judge_untracked(name, kind, size, total)
        if kind == "file" and not why and not os.access(reader.source.checkout / name, os.R_OK):
            why = UNREADABLE
        total += 0 if why else size
        if why:
            left.append(LeftOut(path=name.rstrip("/"), reason=why))
        else:
            taken.append(name)
    if taken:
        stdin = "".join(f"{name}\0" for name in taken).encode("utf-8", "surrogateescape")
        reader.run("update-index", "--add", "-z", "--stdin", stdin=stdin)
    return left


def _look(path: Path) -> tuple[Literal["file", "link", "folder", "other"], int]:
    try:
        info = os.lstat(path)
    except OSError:
        return "other", 0
    if stat.S_ISREG(info.st_mode):
        return "file", info.st_size
    if stat.S_ISLNK(info.st_mode):
        return "link", 0
    return ("folder" if stat.S_ISDIR(info.st_mode) else "other"), 0


def _put_back(reader: _Reader, changes: list[Change]) -> None:
    """Give entries of the temporary index their committed state again."""
    lines = [f"{c.old_mode if c.old_mode != '000000' else '0'} {c.old}\t{c.path}\0" for c in changes]
    reader.run("update-index", "-z", "--index-info", stdin="".join(lines).encode("utf-8", "surrogateescape"))
