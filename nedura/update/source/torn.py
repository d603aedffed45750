"""Mending a checkout that a killed update left half moved; the first thing that a launch from such a checkout does (facts/update.md 10.2).

Every path that git was writing goes back to the commit before, a person's edits and the autostash stay. Standard library only; a copy
of this module and of what it needs lies in the git folder for the case that this very file is torn.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

if __name__ == "__main__":  # a copy that was started by path: its own neighbours, never the torn tree's
    sys.path.insert(
        0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    )

from nedura.programs import find_program
from nedura.update.source.move_marker import MARKER, MoveMarker, drop_marker, lock_identity, read_marker
from nedura.update.source.source_git import SourceGit, SourceGitError
from nedura.update.source.tries import Tries

__all__ = [
    "MODULES",
    "Mended",
    "TornError",
    "changed_paths",
    "content_of",
    "git_dir_of",
    "head_back",
    "is_gits",
    "is_torn",
    "mend",
    "put_back",
    "stands",
    "sync_paths",
]

MODULES: Final = (
    "nedura/programs.py",
    "nedura/update/bounded.py",
    "nedura/update/source/source_git.py",
    "nedura/update/source/move_marker.py",
    "nedura/update/source/tries.py",
    "nedura/update/source/torn.py",
)
"""What recovery needs, relative to the tree; published as committed before each move."""
LOCK: Final = "nedura-update-mend.lock"
LOCK_WAIT: Final = 60.0
LOCK_LIFE: Final = 0.25
"""Seconds after which a lock on a ref that is still there belongs to nobody."""
TRIES: Final = "nedura-update-mend-tries"
SAME_START: Final = 2.0
CHUNK: Final = 1024 * 1024
FEW: Final = 64
_BUSY: Final = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


class TornError(Exception):
    """Raised when a torn checkout cannot be mended; the marker stays and nothing may be started from it."""


class Mended(NamedTuple):
    """What a launch did about an interrupted move.

    Attributes:
        action: `none`, `busy` (an update is at work), `put_back`, `completed` (HEAD is the target and whole) or `retired`.
        paths: how many paths were put back.
        stash: autostash that still holds local edits, may be empty.
    """

    action: str
    paths: int = 0
    stash: str = ""

    @property
    def relaunch(self) -> bool:
        """Whether files of this process may have changed, so that it must start again."""
        return self.action in ("put_back", "completed")


class Change(NamedTuple):
    """One path that differs between two commits.

    Attributes:
        path: relative to the checkout.
        old_mode, old: before; mode 0 when it was not there.
        new_mode, new: after; mode 0 when it is not there.
    """

    path: str
    old_mode: int
    old: str
    new_mode: int
    new: str


def git_dir_of(checkout: str) -> str:
    """The git folder of a checkout or linked worktree, without running git; empty when there is none."""
    dot = os.path.join(checkout, ".git")
    try:
        mode = os.lstat(dot).st_mode
    except OSError:
        return ""
    if stat.S_ISDIR(mode):
        return dot
    if not stat.S_ISREG(mode):
        return ""
    with open(dot, "rb") as file:
        text = file.read(4096).decode("utf-8", "surrogateescape").strip()
    folder = os.path.join(checkout, text.removeprefix("gitdir:").strip())
    return os.path.realpath(folder) if text.startswith("gitdir:") and os.path.isdir(folder) else ""


def is_torn(checkout: str) -> bool:
    """Whether a move marker lies in the checkout's git folder: one `stat` on every launch."""
    git_dir = git_dir_of(checkout)
    return bool(git_dir) and os.path.lexists(os.path.join(git_dir, MARKER))


def process_start(pid: int) -> float | None:
    """When a process was made, unix seconds; None when it is gone or cannot be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as file:
            boot = next(float(line.split()[1]) for line in file if line.startswith(b"btime "))
    except (OSError, IndexError, StopIteration, ValueError):
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def owner_alive(marker: MoveMarker) -> bool:
    """Whether the process that moves the tree still runs. A reused pid has another start time."""
    started = process_start(marker.pid)
    if started is None:
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.waitid(os.P_PID, marker.pid, os.WNOHANG | os.WEXITED | os.WNOWAIT)
        except OSError:
            return False
        return True
    try:
        return abs(started - float(marker.create_time)) <= SAME_START
    except ValueError:
        return True  # cannot be told apart: wait for it rather than write beside it


def changed_paths(git: SourceGit, old: str, new: str) -> list[Change]:
    """Every path that differs between two commits (submodules are not ours to write)."""
    items = git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--full-index", old, new
    ).items
    found = []
    for head, path in zip(items[0::2], items[1::2], strict=True):
        old_mode, new_mode, before, after, _ = head.lstrip(":").split(" ")
        if "160000" not in (old_mode, new_mode):
            found.append(Change(path, int(old_mode, 8), before, int(new_mode, 8), after))
    return found


def content_of(path: str) -> bytes | None:
    """Bytes of a file, or the target of a link; None when there is none. A folder reads as something that is nobody's blob."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return os.fsencode(os.readlink(path))
        if not stat.S_ISREG(mode):
            return b"\0not a file"
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return b"".join(iter(lambda: os.read(handle, CHUNK), b""))
    finally:
        os.close(handle)


def _blob_id(content: bytes, like: str) -> str:
    digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return digest.hexdigest()


def _as_written(git: SourceGit, path: str, blob: str) -> tuple[bytes, bytes]:
    """A blob raw, and with the line ends that git writes here."""
    raw = git.run("cat-file", "blob", blob).out
    return raw, git.run("cat-file", "--filters", f"--path={path}", blob, ok=(0, 128)).out or raw


def _is(git: SourceGit, path: str, mode: int, blob: str, content: bytes | None) -> bool:
    """Whether a path's content is exactly a commit's."""
    if not mode or content is None:
        return not mode and content is None
    return _blob_id(content, blob) == blob or content in _as_written(git, path, blob)


def stands(git: SourceGit, change: Change, content: bytes | None) -> bool:
    """Whether a path, which holds this content, is exactly as before the change."""
    return _is(git, change.path, change.old_mode, change.old, content) and _mode_fits(git, change)


def is_gits(git: SourceGit, change: Change, content: bytes | None) -> bool:
    """Whether what lies at a path was written (perhaps half) or removed by git, and is nobody's edit."""
    if content is None:
        return True
    for mode, blob in ((change.new_mode, change.new), (change.old_mode, change.old)):
        if mode and (
            _blob_id(content, blob) == blob
            or any(whole.startswith(content) for whole in _as_written(git, change.path, blob))
        ):
            return True
    return False


def put_back(git: SourceGit, pre: str, target: str) -> int:
    """Give every path that a move between two commits wrote its content of `pre`; returns how many.

    A path that holds neither side's content, nor the beginning of one, is somebody's edit and stays. It works in both directions.

    Raises:
        SourceGitError, OSError: it could not be done; running it again is safe.
    """
    back: list[str] = []
    gone: list[str] = []
    for change in changed_paths(git, pre, target):
        content = content_of(os.path.join(git.checkout, change.path))
        if stands(git, change, content):
            continue
        if is_gits(git, change, content):
            (back if change.old_mode else gone).append(change.path)
    if not back and not gone:
        return 0  # nothing was written, so the index is untouched too, and what somebody staged in it stays
    for path in gone:
        _remove(git.checkout, path)  # first of all, because the disk may be full
    git.run("read-tree", "--reset", pre)
    hidden = {item[2:] for item in git.run("ls-files", "-t", "-z").items if item.startswith("S ")}
    back = [path for path in back if path not in hidden]  # outside a sparse checkout: missing on purpose
    if back:
        _clear_the_way(git.checkout, back)
        git.run("checkout-index", "-f", "-u", "-q", "-z", "--stdin", stdin=_nul(back))
    git.run("update-index", "-q", "--refresh", ok=(0, 1))
    sync_paths(git.checkout, [*back, *gone])
    return len(back) + len(gone)


def _mode_fits(git: SourceGit, change: Change) -> bool:
    try:
        mode = os.lstat(os.path.join(git.checkout, change.path)).st_mode
    except OSError:
        return not change.old_mode
    wanted = change.old_mode
    if stat.S_ISLNK(mode) or wanted == 0o120000:
        return stat.S_ISLNK(mode) and wanted == 0o120000
    return bool(mode & 0o100) == bool(wanted & 0o100)


def _nul(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _remove(checkout: str, path: str) -> None:
    """Remove a file that the move added, and the folders that it leaves empty."""
    try:
        os.unlink(os.path.join(checkout, path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    folder = os.path.dirname(path)
    while folder:
        try:
            os.rmdir(os.path.join(checkout, folder))
        except OSError:
            return
        folder = os.path.dirname(folder)


def _clear_the_way(checkout: str, paths: Iterable[str]) -> None:
    """Where the move made an (empty) folder of what was a file before."""
    for path in paths:
        full = os.path.join(checkout, path)
        if os.path.isdir(full) and not os.path.islink(full):
            try:
                os.rmdir(full)
            except OSError:
                continue


def sync_paths(checkout: str, paths: Iterable[str]) -> None:
    """Make files and their folders durable; many at once by one flush of the file system."""
    listed = list(paths)
    if len(listed) > FEW and _flush(checkout):
        return
    folders = {checkout, *(os.path.dirname(os.path.join(checkout, path)) for path in listed)}
    for full in (*(os.path.join(checkout, path) for path in listed), *folders):
        try:
            handle = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # removed by the move, or a link
            continue
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _flush(folder: str) -> bool:
    """`syncfs`; False where there is none or it failed (each file is asked then, and says why)."""
    call = getattr(ctypes.CDLL(None), "syncfs", None)
    if call is None:
        return False
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return bool(call(handle) == 0)
    finally:
        os.close(handle)


def mend(checkout: str, *, program: str | None = None, again: bool = False) -> Mended:
    """Finish or undo an interrupted move. Concurrent launches take turns.

    Args:
        checkout: the working tree.
        program: git.
        again: try also after three failures.

    Raises:
        TornError: it cannot be mended; the marker stays.
    """
    checkout = os.path.realpath(checkout)
    git_dir = git_dir_of(checkout)
    if not git_dir or not os.path.lexists(os.path.join(git_dir, MARKER)):
        return Mended("none")
    with _turn(git_dir):
        try:
            marker = read_marker(git_dir)
            if marker is None:
                return Mended("none")
            if owner_alive(marker):
                return Mended("busy")
            tries = Tries(os.path.join(git_dir, TRIES), repr(marker).encode("utf-8", "replace"))
            if not again and tries.over():
                raise TornError(tries.over())
            return _counted(tries, checkout, git_dir, marker, program)
        except (OSError, ValueError, SourceGitError) as error:
            raise TornError(f"an interrupted update of {checkout} cannot be mended: {error}") from error


def _counted(tries: Tries, checkout: str, git_dir: str, marker: MoveMarker, program: str | None) -> Mended:
    tries.begin()
    try:
        mended = _mend(checkout, git_dir, marker, program)
    except TornError:  # it is a person's turn: nothing was tried
        tries.waive()
        raise
    except (OSError, ValueError, SourceGitError) as error:
        tries.failed(str(error))
        raise
    tries.end()
    return mended


def _mend(checkout: str, git_dir: str, marker: MoveMarker, program: str | None) -> Mended:
    found = program or (marker.git if os.access(marker.git, os.X_OK) else None) or find_program("git")
    if found is None:
        raise TornError("git is missing")
    busy = [name for name in _BUSY if os.path.lexists(os.path.join(git_dir, name))]
    if busy:
        raise TornError(
            f"somebody began a merge or rebase in {checkout} ({busy[0]}); finish or abort it first"
        )
    git = SourceGit(found, checkout, git_dir)
    _free_index(git_dir, marker)
    _free_refs(git, marker)
    head = git.run("rev-parse", "--verify", "-q", "HEAD^{commit}", ok=(0, 1, 128)).text
    if git.run("cat-file", "-e", f"{marker.target}^{{commit}}", ok=(0, 1, 128)).code != 0:
        return _retire(git, git_dir, marker, head)
    if head == marker.target != marker.pre and not marker.rollback:
        count = put_back(
            git, marker.target, marker.pre
        )  # the move was made; what a power cut took away comes again
        drop_marker(git_dir)
        return Mended("completed", paths=count, stash=marker.stash)
    if head not in (marker.pre, marker.target):
        if git.run("diff-index", "--quiet", "HEAD", "--", ok=(0, 1)).code == 0:
            drop_marker(git_dir)
            return Mended("retired", stash=marker.stash)
        raise TornError(
            f"{checkout} was moved to {head[:12]} by somebody else while an update was interrupted"
        )
    count = put_back(git, marker.pre, marker.target)
    head_back(git, marker)
    drop_marker(git_dir)
    return Mended("put_back", paths=count, stash=marker.stash)


def head_back(git: SourceGit, marker: MoveMarker) -> None:
    """HEAD names `pre` again, on the branch it was on. Outside a rollback no ref has moved yet.

    Raises:
        SourceGitError: a ref cannot be written.
    """
    if marker.rollback == "branch":
        git.run("update-ref", "-m", "nedura: put back", "--end-of-options", marker.ref, marker.pre)
        git.run("symbolic-ref", "-m", "nedura: put back", "HEAD", marker.ref)
    elif marker.rollback == "detach":
        git.run("update-ref", "--no-deref", "-m", "nedura: put back", "HEAD", marker.pre)


def _retire(git: SourceGit, git_dir: str, marker: MoveMarker, head: str) -> Mended:
    """The target commit is gone: the marker goes only over a clean tree at `pre`."""
    if head == marker.pre and git.run("diff-index", "--quiet", "HEAD", "--", ok=(0, 1)).code == 0:
        drop_marker(git_dir)
        return Mended("retired", stash=marker.stash)
    raise TornError("the target commit of the interrupted update is gone, and the tree is not clean")


def _free_index(git_dir: str, marker: MoveMarker) -> None:
    """Remove the index lock that the dead move left; one that was there before it is somebody else's."""
    identity = lock_identity(git_dir)
    if identity and identity != marker.index_lock:
        os.unlink(os.path.join(git_dir, "index.lock"))


def _free_refs(git: SourceGit, marker: MoveMarker) -> None:
    """Remove the locks on HEAD and the branch that the dead move's git left; a living git holds one for milliseconds."""
    since = os.lstat(os.path.join(git.git_dir, MARKER)).st_mtime_ns
    names = ["HEAD.lock", *([f"{marker.ref}.lock"] if marker.ref else [])]
    asked = [part for name in names for part in ("--git-path", name)]
    paths = [os.path.join(git.checkout, line) for line in git.run("rev-parse", *asked).text.splitlines()]
    found = {path: info for path in paths if (info := _lock_info(path)) and info.st_mtime_ns >= since}
    if found:
        time.sleep(LOCK_LIFE)
    for path, info in found.items():
        now = _lock_info(path)
        if now is not None and os.path.samestat(now, info):
            os.unlink(path)


def _lock_info(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


class _turn:
    """One mender at a time: a flock on a file of the git folder."""

    def __init__(self, git_dir: str) -> None:
        self._path = os.path.join(git_dir, LOCK)
        self._handle = -1

    def __enter__(self) -> None:
        self._handle = os.open(
            self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )
        until = time.monotonic() + LOCK_WAIT
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(self._handle)
                    raise TornError("another process has been mending this checkout for a minute") from None
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _main(arguments: list[str]) -> int:
    """`torn.py CHECKOUT [--again]`: exit 0 when there is nothing left to mend, 75 while an update is at work, else 1."""
    try:
        mended = mend(arguments[0], again="--again" in arguments)
    except TornError as error:
        sys.stderr.write(f"nedura: {error}\n")
        return 1
    if mended.action == "put_back":
        edits = "; local edits are in the stash until the next update" if mended.stash else ""
        sys.stderr.write(
            f"nedura: an interrupted update was put back ({mended.paths} file{'' if mended.paths == 1 else 's'}){edits}.\n"
        )
    return 75 if mended.action == "busy" else 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
