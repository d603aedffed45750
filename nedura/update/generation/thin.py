"""The parts of a generation that need nothing but the standard library: its thin virtual environment, its number, its pointer.

Also used by `repair`, which runs when the environment that everything else needs cannot start.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nedura.records import fsync_folder, make_folder
from nedura.update.generation.damage import HOOKS, PIN_LINE, module_code
from nedura.update.generation.interpreter import Interpreter

__all__ = ["UNSUPPORTED", "flip", "next_name", "protect", "python_of", "venv_faults", "write_venv"]

UNSUPPORTED: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL})
"""What flock says on a folder of a file system that cannot do it (NFS may not)."""
_NO_SITE: Final = "include-system-site-packages = false"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIN: Final = '''\
"""Pins this process to one generation and holds its lease (a shared flock that ends with the process). Written by nedura."""

import fcntl
import os
import site
import sys

_here = os.path.realpath(__file__)
GENERATION = os.path.normpath(os.path.join(_here, *[os.pardir] * 5))
ROOTS = {roots!r}
PACKAGES = {packages!r}
sys.dont_write_bytecode = True


def _note():
    """A file system without such locks: say in a file that this process lives. Best effort: a day passes before anything goes."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            start = int(stat.read().rpartition(b")")[2].split()[19])
        with open("/etc/machine-id") as machine, open("/proc/sys/kernel/random/boot_id") as boot:
            table = " ".join((machine.read().strip(), boot.read().strip(), os.readlink("/proc/self/ns/pid")))
        folder = os.path.normpath(os.path.join(GENERATION, os.pardir, os.pardir, "leases"))
        os.makedirs(folder, 0o700, exist_ok=True)
        name = "%s.%d.%d" % (os.path.basename(GENERATION), os.getpid(), start)
        handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, table.encode())
        finally:
            os.close(handle)
    except (OSError, IndexError, ValueError):
        pass


try:
    LEASE = os.open(GENERATION, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(LEASE, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as _error:
        if _error.errno not in {unsupported!r}:
            raise
        _note()
    if not os.path.samestat(os.fstat(LEASE), os.stat(GENERATION)):
        raise OSError
except OSError:
    os._exit(69)  # collected under us; an exception would be swallowed and the start go on unpinned
sys.path += [os.path.normpath(os.path.join(GENERATION, "tree", root)) for root in ROOTS]
for _folder, _with_pth in PACKAGES:
    _folder = os.path.normpath(os.path.join(GENERATION, _folder))
    if _with_pth:
        site.addsitedir(_folder)
    else:
        sys.path.append(_folder)
'''


def next_name(generations: Path) -> str:
    """Name of the next generation: one more than any that was ever there, trash included."""
    try:
        names = os.listdir(generations)
    except FileNotFoundError:
        names = []
    numbers = [int(found[1]) for name in names if (found := re.match(r"^(?:\.trash-)?(\d{6,})", name))]
    return f"{max(numbers, default=0) + 1:06d}"


def write_venv(
    folder: Path,
    python: Interpreter,
    roots: Sequence[str],
    env: str,
    packages: Sequence[str] = (),
) -> Path:
    """Write the thin virtual environment of a generation.

    Args:
        folder: the generation.
        python: base interpreter.
        roots: folders of the tree for `sys.path`.
        env: name of the shared environment, or empty.
        packages: absolute folders of packages that the host manages; their `.pth` files are not run: they
            could put another copy of the product on the path.

    Returns:
        the generation's interpreter.
    """
    venv = folder / "venv"
    site_packages = make_folder(venv / python.library)
    binaries = make_folder(venv / "bin")
    os.symlink(python.path, binaries / "python")
    shared = [(f"../../envs/{env}/{python.library}", True)] if env else []
    pin = _PIN.format(
        roots=list(roots),
        packages=shared + [(path, False) for path in packages],
        unsupported=sorted(UNSUPPORTED),
    )
    pin += HOOKS
    home = os.path.dirname(python.path)
    _new_file(venv / "pyvenv.cfg", f"home = {home}\n{_NO_SITE}\n")
    _new_file(site_packages / "_generation.pth", PIN_LINE)
    _new_file(site_packages / "_generation.py", pin)
    _new_file(site_packages / "_damage.py", module_code())
    return binaries / "python"


def _new_file(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o444)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def venv_faults(folder: Path) -> list[str]:
    """Parts of a generation's virtual environment that no start can go through, judged by their form: other versions wrote others."""
    venv = folder / "venv"
    found = []
    python = python_of(folder)
    if not (
        python.is_symlink() and python.is_file() and os.access(python, os.X_OK) and python.stat().st_size
    ):
        found.append("venv/bin/python")
    lines = _lines(venv / "pyvenv.cfg")
    if lines[:1] == [] or not lines[0].startswith("home = /") or lines[1:2] != [_NO_SITE]:
        found.append("venv/pyvenv.cfg")
    (library,) = [*venv.glob("lib/python*/site-packages")][:1] or (venv / "lib",)
    asked = "".join(_lines(library / "_generation.pth"))
    end = (
        "WHOLE = True" if "_generation.WHOLE" in asked else "LEASE = os.open("
    )  # the pin's last line, where the start asks for it
    for name, whole in (
        ("_generation.pth", "import _generation" in asked),
        ("_generation.py", any(end in line for line in _lines(library / "_generation.py"))),
    ):
        if not whole:
            found.append(str((library / name).relative_to(folder)))
    return found


def _lines(file: Path) -> list[str]:
    """The whole lines of a small text; none when it cannot be read, or is no text."""
    try:
        return file.read_text("utf-8").split("\n")[:-1]
    except (OSError, ValueError):
        return []


def python_of(folder: Path) -> Path:
    """The interpreter of a generation."""
    return folder / "venv" / "bin" / "python"


def protect(folder: Path) -> None:
    """Take write permission from every file and folder of a part of a generation. No link is followed.

    Raises:
        OSError: the system refused.
    """
    handle = os.open(folder, _FOLDER)
    try:
        _protect(handle)
    finally:
        os.close(handle)


def _protect(handle: int) -> None:
    """By handles: looking each name up from the root took longer than everything else."""
    folders = []
    with os.scandir(handle) as found:
        for entry in found:
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                folders.append(entry.name)
            elif not stat.S_ISLNK(mode) and (mode & 0o222 or mode & 0o444 != 0o444):
                os.chmod(entry.name, 0o555 if mode & 0o100 else 0o444, dir_fd=handle)
    for name in folders:
        below = os.open(name, _FOLDER, dir_fd=handle)
        try:
            _protect(below)
        finally:
            os.close(below)
    os.fchmod(handle, 0o555)


def flip(install: Path, pointer: str, name: str, *, durable: bool = True) -> None:
    """Replace a pointer of an install by one rename; an empty name removes it.

    Args:
        install: the install's folder.
        pointer: `current` or `previous`.
        name: name of the generation.
        durable: flush the folder; without, the next flush of it makes this durable, in order.

    Raises:
        OSError: the disk refused; the old pointer stands.
    """
    link, temp = install / pointer, install / f".tmp.{pointer}.{os.getpid()}"
    try:
        if name:
            temp.unlink(missing_ok=True)
            os.symlink(f"generations/{name}", temp)
            os.replace(temp, link)
        else:
            link.unlink(missing_ok=True)
        if durable:
            fsync_folder(install)
    finally:
        temp.unlink(missing_ok=True)
