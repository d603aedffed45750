"""Whether the tree that this process runs from is whole: an update killed in its move is mended before anything else is imported.

Standard library only, and one or two `stat` calls when all is well. A sealed generation has neither marker.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Final

__all__ = ["entry_is_whole", "mend_from_outside", "mend_own_tree"]

MARKER: Final = "nedura-update-pull"
RECOVERY: Final = "nedura-update-recovery"
SWAP: Final = ".nedura-update-swap.json"
MEND_SECONDS: Final = 120.0


def mend_own_tree(root: str | None = None, *, again: bool = False) -> tuple[bool, str]:
    """Mend the tree of this code when a killed update left it half moved.

    Args:
        root: the tree; default the one this module lies in.
        again: try also what three launches could not mend; a person's update asks for that.

    Returns:
        Whether files changed, so that the process must start again; and why it must not go on, empty when it may.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) if root is None else root
    if os.path.lexists(os.path.join(root, SWAP)):
        return _mend_swap(root, again)
    git_dir = _git_dir(root)
    if not git_dir or not os.path.lexists(os.path.join(git_dir, MARKER)):
        return False, ""
    copy, fault = _copy_of(git_dir)
    if copy and not _is_like(copy, root):  # some of the tree's own repair code is new, half written or gone
        return _mend_by_copy(copy, root, again)
    try:
        from nedura.update.source import torn

        try:
            return torn.mend(root, again=again).relaunch, ""
        except torn.TornError as error:
            return False, str(error)
    except Exception as error:  # border: the repair code itself may be torn, in any way that Python can fail
        return False, fault or f"the repair code of an interrupted update failed: {error}"


def mend_from_outside(root: str, command: str, *, again: bool = False) -> int:
    """What a launcher does about a move marker before it starts any code of the tree, whose every file may be half written.

    The launcher carries this module as text. Only repair code with the hashes of its commit is run: the published copy, else the tree's
    own. A tree without repair code of its own (a host application's) is left to the command.

    Args:
        root: the checkout.
        command: who speaks.
        again: try also what three launches could not mend.

    Returns:
        0 when the command may start, else 1; why has been said.
    """
    git_dir = _git_dir(root)
    try:
        before = _commit_before(git_dir)
    except FileNotFoundError:  # since the launcher looked, the move has ended or another launch has mended it
        return 0
    except OSError as error:
        sys.stderr.write(f"{command}: the move marker cannot be read: {error.strerror}\n")
        return 1
    published = os.path.join(git_dir, RECOVERY, before)
    if not os.path.isfile(os.path.join(published, "MANIFEST")):
        return 0
    copy, reason = _copy_of(git_dir)
    if copy or _is_like(published, root):
        reason = _mend_by_copy(copy or root, root, again)[1]
    if reason:
        sys.stderr.write(f"{command}: {reason}\n")
    return int(bool(reason))


def entry_is_whole(root: str, entry: str, command: str) -> int:
    """Whether the command's entry point can say by itself what is wrong: an emptied or cut-off one ends with 0 and without a word.

    The launcher carries this module as text and asks when the entry point lacks its end. An owner's edit is none of our business: only
    what is gone, does not compile or is the beginning of the committed file is damage.

    Args:
        root: the checkout or the unpacked release.
        entry: the entry point's path in it.
        command: who speaks.

    Returns:
        What a launcher does about it: 0 go on, 1 end; why has been said.
    """
    import shlex  # only a broken entry point pays for these
    import subprocess

    try:
        content = _read(os.path.join(root, entry))
        compile(content, entry, "exec")
    except OSError as error:
        fault = error.strerror or "it cannot be read"
    except (SyntaxError, ValueError):
        fault = "it does not compile"
    else:
        fault = "" if content.strip() else "it is empty"
    git = bool(_git_dir(root)) and os.path.exists(os.path.join(root, ".git"))
    if git and not fault:
        argv = ["git", "-C", root, "cat-file", "blob", f"HEAD:{entry}"]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError):
            return 0
        if done.returncode == 0 and done.stdout != content and done.stdout.startswith(content):
            fault = "it is cut off"
    if not fault:
        return 0
    back = (
        f"git -C {shlex.quote(root)} checkout -- {shlex.quote(entry)}" if git else "unpack the release again"
    )
    sys.stderr.write(
        f"{command}: this code is damaged: {os.path.join(root, entry)}: {fault.lower()}. Put it back: {back}\n"
    )
    return 1


def _read(path: str, limit: int = -1) -> bytes:
    """The first bytes of a plain file, all of them by default; a pipe in its place must hold up no start.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        return file.read(limit)


def _git_dir(root: str) -> str:
    dot = os.path.join(root, ".git")
    if not os.path.isfile(dot):
        return dot
    text = _read(dot, 4096).decode("utf-8", "surrogateescape").strip()
    return os.path.join(root, text.removeprefix("gitdir:").strip()) if text.startswith("gitdir:") else ""


def _commit_before(git_dir: str) -> str:
    """The commit that the marker's move began at; empty when it names none.

    Raises:
        OSError: the marker cannot be read.
    """
    lines = _read(os.path.join(git_dir, MARKER), 65536).splitlines()
    named = [line[4:] for line in lines if line.startswith(b"pre=")]
    pre = named[-1].decode("ascii", "replace") if named else ""
    return pre if pre.isalnum() else ""


def _copy_of(git_dir: str) -> tuple[str, str]:
    """The folder of the repair modules that were published before the move, each with the hash it had in the commit; else why not."""
    try:
        pre = _commit_before(git_dir)
    except OSError as error:
        return "", f"the move marker cannot be read: {error.strerror}"
    copy = os.path.join(git_dir, RECOVERY, pre)
    if not pre or not os.path.isfile(os.path.join(copy, "MANIFEST")):
        return "", "an update was interrupted and no copy of the repair code is there; run: git status"
    if _is_like(copy, copy):
        return copy, ""
    return "", "an update was interrupted and the copy of the repair code is damaged; run: git status"


def _listed(copy: str) -> dict[str, str]:
    """Path -> blob id of a published copy; empty when its list makes no sense."""
    try:
        text = _read(os.path.join(copy, "MANIFEST"), 65536).decode("utf-8")
        rows = [line.split(" ", 1) for line in text.splitlines()]
        return {path: blob for blob, path in rows if not path.startswith("/") and ".." not in path.split("/")}
    except (OSError, ValueError):
        return {}


def _blob_of(path: str, like: str) -> str:
    """A file's id as git names content, of the same kind as another; empty when it cannot be read."""
    import hashlib  # only a repair pays for it

    try:
        content = _read(path)
    except OSError:
        return ""
    data = b"blob %d\0" % len(content) + content
    return (
        hashlib.sha1(data, usedforsecurity=False) if len(like) == 40 else hashlib.sha256(data)
    ).hexdigest()


def _is_like(copy: str, root: str) -> bool:
    """Whether the repair modules below a folder are byte for byte those that were published."""
    listed = _listed(copy)
    return bool(listed) and all(
        _blob_of(os.path.join(root, path), blob) == blob for path, blob in listed.items()
    )


def _mend_by_copy(copy: str, root: str, again: bool) -> tuple[bool, str]:
    """Run the copy of the repair modules that was published before the move."""
    import subprocess  # only a repair pays for it

    script = os.path.join(copy, "nedura", "update", "source", "torn.py")
    argv = [sys.executable, "-I", "-S", "-B", "-X", "utf8", script, root, *(["--again"] if again else [])]
    try:
        done = subprocess.run(argv, stderr=subprocess.PIPE, timeout=MEND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"the repair code cannot be run: {error}"
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode not in (0, 75):
        line = said.splitlines()[-1].removeprefix("nedura: ") if said else ""
        return False, line or "an interrupted update could not be put back"
    if said:
        sys.stderr.write(f"{said}\n")
    return done.returncode == 0, ""  # 75: an update is at work


def _mend_swap(root: str, again: bool) -> tuple[bool, str]:
    from pathlib import Path

    try:
        from nedura.errors import NeduraError
        from nedura.update.commit.zip_swap import recover_swap
        from nedura.update.source.tries import Tries
    except Exception:  # border: as above
        return False, "an update was interrupted in the middle of its swap; unpack the release again"
    marker = os.path.join(root, SWAP)
    try:
        tries = Tries(f"{marker}.tries", _read(marker, 65536))
    except OSError as error:
        return (
            False,
            f"the record of an interrupted swap, {marker}, cannot be read: {error.strerror}. Move it away",
        )
    if not again and tries.over():
        return False, tries.over()
    tries.begin()
    try:
        done = recover_swap(Path(root))
    except NeduraError as error:
        tries.failed(error.diagnostics())
        return False, error.diagnostics()
    tries.end()  # also when an update is at work: nothing was tried
    return done in ("undone", "finished"), ""
