"""Leases: whether a process runs from a generation (generations.md 9).

A lease is a shared flock on the generation's own folder. Where a file system has no such lock (NFS may not), each process leaves a note
beside the generations instead. A note is weaker: a process of another machine or container cannot be asked whether it lives. So what
cannot be told counts as in use, and nothing goes that was made or current within a day.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from nedura.update.generation.thin import UNSUPPORTED

__all__ = [
    "DAY",
    "UNSUPPORTED",
    "Lock",
    "Note",
    "Table",
    "is_leased",
    "lease_alone",
    "read_notes",
    "started",
    "sweep_notes",
    "why_noted",
]

DAY: Final = 86_400.0
NOTES: Final = "leases"
_NOTE: Final = re.compile(r"^([0-9]{6,})\.([0-9]{1,10})\.([0-9]{1,20})\Z")
MAX_NOTE: Final = 400

Lock = Callable[[int, int], None]


@attrs.frozen
class Table:
    """Whose process numbers a note speaks of.

    Attributes:
        machine: its id.
        boot: id of its last start.
        space: its process number space; a container has its own.
    """

    machine: str = ""
    boot: str = ""
    space: str = ""

    @classmethod
    def here(cls) -> Table:
        """The one of this process; empty where the system does not tell."""
        try:
            with open("/etc/machine-id") as machine, open("/proc/sys/kernel/random/boot_id") as boot:
                return cls(machine.read().strip(), boot.read().strip(), os.readlink("/proc/self/ns/pid"))
        except OSError:
            return cls()


@attrs.frozen
class Note:
    """That a process runs from a generation.

    Attributes:
        generation: its name.
        pid, start: the process, and its start in ticks since the machine's.
        table: where that number counts.
        path: the note's file.
    """

    generation: str
    pid: int
    start: int
    table: Table
    path: Path


def why_noted(notes: Sequence[Note], age: float, here: Table, starts: Callable[[int], int | None]) -> str:
    """Why a generation without a lock stays; empty when it may go. Pure.

    Args:
        notes: those about it.
        age: seconds since it was made or was last current.
        here: the table of this process.
        starts: start of a process of this table, None when there is none.
    """
    if age < DAY:
        return "younger than a day, on a file system without locks"
    if any(_lives(note, here, starts) for note in notes):
        return "in use"
    return "in use elsewhere, as far as can be told" if any(_is_far(note, here) for note in notes) else ""


def _lives(note: Note, here: Table, starts: Callable[[int], int | None]) -> bool:
    return note.table == here and bool(here.machine) and starts(note.pid) == note.start


def _is_far(note: Note, here: Table) -> bool:
    """Neither asked nor known to be over: an earlier start of this very machine ended all its processes."""
    if not here.machine or not note.table.machine:
        return True
    return note.table.machine != here.machine or (
        note.table.boot == here.boot and note.table.space != here.space
    )


def started(pid: int) -> int | None:
    """Start of a process of this machine in ticks since the machine's; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def read_notes(generation: Path) -> list[Note]:
    """The notes about a generation; one that cannot be read counts as another machine's."""
    folder = generation.parents[1] / NOTES
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = []
    for name in names:
        match = _NOTE.match(name)
        if match is not None and match[1] == generation.name:
            table = _table(folder / name)
            found.append(Note(match[1], int(match[2]), int(match[3]), table, folder / name))
    return found


def _table(path: Path) -> Table:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return Table()
    try:
        words = os.read(handle, MAX_NOTE).decode("ascii", "replace").split()
    finally:
        os.close(handle)
    return Table(*words) if len(words) == 3 else Table()


def sweep_notes(
    generation: Path, here: Table | None = None, starts: Callable[[int], int | None] = started
) -> None:
    """Remove the notes of processes that are certainly over."""
    here = Table.here() if here is None else here
    for note in read_notes(generation):
        if not _lives(note, here, starts) and not _is_far(note, here):
            note.path.unlink(missing_ok=True)


@contextmanager
def lease_alone(folder: Path, lock: Lock = fcntl.flock) -> Iterator[bool | None]:
    """Hold a generation's lease alone for a block; False when somebody holds it, None where there are no such locks.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone: bool | None = True
        except BlockingIOError:
            alone = False
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            alone = None
        yield alone
    finally:
        os.close(handle)


def is_leased(folder: Path, lock: Lock = fcntl.flock) -> bool:
    """Whether a process runs from a generation now, as far as can be told.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    with lease_alone(folder, lock) as alone:
        return (
            not alone
            if alone is not None
            else bool(why_noted(read_notes(folder), DAY, Table.here(), started))
        )
