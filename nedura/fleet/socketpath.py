"""Where a local socket of a home is: in the home, or, when that path is too long or its file system cannot, in a private folder.

The fall-back lives in a 0700 folder of the user, and a pointer file in the home names it. Both ends check owner and mode, so that a
socket somebody else put there is never talked to (decision 25, threats.md 5).
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import StoreError, UnsafePath
from nedura.records import make_folder, read_bytes, remove, write_bytes

logger = logging.getLogger(__name__)

__all__ = ["MAX_PATH", "Bound", "bind_socket", "fallback_folders", "find_socket", "peer_of", "socket_folder"]

MAX_PATH: Final = 100
"""Longest socket path in bytes that is bound directly (limits are 104 on macOS and 108 on Linux)."""
_OURS: Final = re.compile(r"(?:gateway|chat)-[0-9a-f]{16}\.sock")
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS})


def socket_name(home: Path, name: str) -> str:
    """File name of a fall-back socket: 16 hex digits of the resolved home keep homes apart."""
    import hashlib  # only a fall-back needs it, and every look at a fleet would pay

    digest = hashlib.sha256(os.path.realpath(home).lower().encode()).hexdigest()[:16]
    return f"{name}-{digest}.sock"


def fallback_folders(uid: int, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The only folders in which a fall-back socket of a user may be, best first."""
    import tempfile  # as above

    runtime = environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime) / "nedura"] if runtime.startswith("/") else []
    places.append(Path(f"/run/user/{uid}/nedura"))
    places += [Path(base) / f"nedura-{uid}" for base in dict.fromkeys((tempfile.gettempdir(), "/tmp"))]
    return tuple(dict.fromkeys(places))


def socket_folder(folder: Path, uid: int) -> bool:
    """Whether a folder is a real one, of that user, and closed to everybody else."""
    try:
        info = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & 0o077


class Bound:
    """A listening socket and the names it has in the file system.

    Attributes:
        socket: it listens already.
        path: where it is.
        pointer: the file in the home that names it, None when it is in the home itself.
    """

    def __init__(self, bound: socket.socket, path: Path, pointer: Path | None) -> None:
        self.socket = bound
        self.path = path
        self.pointer = pointer
        info = os.lstat(path)
        self._inode = (info.st_dev, info.st_ino)

    def close(self) -> None:
        """Stop listening and remove the names, unless a successor has taken them over."""
        self.socket.close()
        try:
            info = os.lstat(self.path)
            if (info.st_dev, info.st_ino) == self._inode:
                os.unlink(self.path)
                if self.pointer is not None:
                    remove(self.pointer)
        except (OSError, StoreError):
            pass  # the successor or a sweep has them


def _bind(path: Path, backlog: int) -> Bound:
    """Bind under a private name with mode 0600 from the first instant, then move it into place over a stale one."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
            raise UnsafePath(f"{path.name} is not a socket of ours.", advice="Move it away.")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temp = path.with_name(f".{os.urandom(3).hex()}")
    try:
        try:
            os.fchmod(bound.fileno(), 0o600)
        except OSError:
            pass  # only Linux gives the file the socket's mode; elsewhere the chmod below closes it
        bound.bind(str(temp))
        os.chmod(temp, 0o600)
        bound.listen(backlog)
        os.rename(temp, path)
    except OSError:
        bound.close()
        try:
            os.unlink(temp)
        except OSError:
            pass
        raise
    bound.setblocking(False)
    return Bound(bound, path, None)


def bind_socket(home: Path, name: str, environ: Mapping[str, str], backlog: int = 128) -> Bound:
    """Listen on a home's socket. Only the holder of the home's claim may call this.

    Args:
        home: the home.
        name: `gateway` or `chat`.
        environ: the environment, for the user's runtime folder.
        backlog: connections the kernel may queue.

    Raises:
        StoreError: no place took it.
    """
    direct = home / f"{name}.sock"
    pointer = home / f"{name}.sock.path"
    if len(os.fsencode(direct)) <= MAX_PATH:
        try:
            bound = _bind(direct, backlog)
            remove(pointer)
            return bound
        except UnsafePath as error:
            logger.warning(
                "%s", error.message
            )  # what stands there is left alone; another place serves as well
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise StoreError(f"{direct.name} cannot be bound: {error.strerror}.") from error
    uid = os.geteuid()
    for folder in fallback_folders(uid, environ):
        bound_there = _bind_in(folder, socket_name(home, name), uid, backlog)
        if bound_there is not None:
            write_bytes(pointer, os.fsencode(bound_there.path) + b"\n")
            return Bound(bound_there.socket, bound_there.path, pointer)
    raise StoreError(f"No folder can hold the {name} socket of this home.", advice="Set XDG_RUNTIME_DIR.")


def _bind_in(folder: Path, name: str, uid: int, backlog: int) -> Bound | None:
    path = folder / name
    if not folder.parent.is_dir() or len(os.fsencode(path)) > MAX_PATH:
        return None
    try:
        make_folder(folder)
        _sweep(folder, uid)
        return _bind(path, backlog) if socket_folder(folder, uid) else None
    except (OSError, StoreError):
        return None


def _sweep(folder: Path, uid: int) -> None:
    """Remove sockets that dead processes left in a folder of ours: nobody else comes back to these names."""
    if not socket_folder(folder, uid):
        return
    for name in os.listdir(folder):
        path = folder / name
        if _OURS.fullmatch(name) and _is_dead(path):
            try:
                os.unlink(path)
            except OSError:
                pass  # another start was faster


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        try:
            link.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def find_socket(home: Path, name: str, environ: Mapping[str, str], uid: int | None = None) -> Path | None:
    """Where a home's socket is, if what stands there can be trusted; None otherwise. Connects to nothing.

    Args:
        home: the home.
        name: `gateway` or `chat`.
        environ: the environment, for the user's runtime folder.
        uid: owner it must have; default the owner of the home.
    """
    try:
        owner = os.stat(home).st_uid if uid is None else uid
        direct = home / f"{name}.sock"
        if os.path.lexists(direct) and len(os.fsencode(direct)) <= MAX_PATH + 7 and _trusted(direct, owner):
            return direct
        target = Path(os.fsdecode(read_bytes(home / f"{name}.sock.path", 4096).strip()))
    except (OSError, StoreError, ValueError):
        return None
    if target.name != socket_name(home, name) or target.parent not in fallback_folders(owner, environ):
        return None
    return target if socket_folder(target.parent, owner) and _trusted(target, owner) else None


def _trusted(path: Path, owner: int) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False  # it went away, or its folder cannot be entered
    return stat.S_ISSOCK(info.st_mode) and info.st_uid == owner and not info.st_mode & 0o077


def peer_of(link: socket.socket) -> tuple[int, int] | None:
    """(pid, uid) of the other end as the kernel knows it; pid 0 means another pid namespace. None where it cannot be told."""
    if hasattr(socket, "SO_PEERCRED"):
        import struct

        try:
            data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return None
        pid, uid, _ = struct.unpack("3i", data)
        return pid, uid
    return _bsd_peer(link)


def _bsd_peer(link: socket.socket) -> tuple[int, int] | None:
    """LOCAL_PEERPID and LOCAL_PEERCRED of macOS."""
    import struct

    try:
        cred = link.getsockopt(0, 0x001, 76)
        pid = link.getsockopt(0, 0x002, 4)
    except OSError:
        return None
    _, uid = struct.unpack_from("II", cred)
    return struct.unpack("i", pid)[0], uid
