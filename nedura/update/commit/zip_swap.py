"""Replacing a tree without git, on any platform: staged beside, renamed entry by entry under a marker, rolled back whole on any error.

A killed swap is found by its marker: before all entries were in place everything goes back, afterwards only the old copies go. Where the
system can exchange two names (Linux), no entry is ever missing: what mends a killed swap is itself code of one of these entries. What a
system does with files in use is in `zip_rules`; a folder that it will not rename is swapped name by name.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import attrs

from nedura.errors import RecordMissing, StoreError, UpdateError
from nedura.text import clean
from nedura.update.commit.zip_files import HERE, SwapFiles, folded
from nedura.update.commit.zip_rules import Fault, Patience, fault_of
from nedura.update.commit.zip_stage import stage_tree
from nedura.update.commit.zip_tree import OLD, PARTIAL, PRESERVED, STAGING, STOP_CLASS, SWAP, changed_files
from nedura.update.ledger.owner import Owner, is_alive, myself

__all__ = ["SWAP", "is_half_swapped", "recover_swap", "swap_tree"]

_AS_IT_WAS: Final = "Everything is as it was."
_BY_HAND: Final = f"Unpack the release of this folder over it again, then remove {SWAP}."
Stage = Callable[[Any, Any, Mapping[str, Any]], None]


@attrs.frozen
class _Entry:
    """One name that is swapped: of the top folder, or below one that could not be renamed as a whole."""

    live: PurePath
    path: str

    @property
    def now(self) -> PurePath:
        return self.live / self.path

    @property
    def top(self) -> PurePath:
        """Where the entry of the top folder is staged."""
        return self.live / f"{self.path.split('/', 1)[0]}{STAGING}"

    @property
    def staged(self) -> PurePath:
        return self.top.joinpath(*self.path.split("/")[1:])

    @property
    def old(self) -> PurePath:
        return self.now.with_name(f"{self.now.name}{OLD}")


@attrs.frozen
class _Known:
    """What the marker tells of an entry: whether there was one, its inode (0: not told), by which it is known after an exchange, and
    how its folder spelled it.
    """

    was_there: bool
    before: int = 0
    spelled: str = ""


@attrs.define
class _Swap:
    """A swap at work.

    Args:
        live: the live tree.
        files: its system.
        entries: what is swapped, in order.
        known: what stood there before, by path.
        going: paths that go.
    """

    live: PurePath
    files: SwapFiles
    entries: list[_Entry]
    known: dict[str, _Known] = attrs.field(factory=dict)
    going: set[str] = attrs.field(factory=set)
    at_work: str = ""

    def look(self, entries: Iterable[_Entry]) -> None:
        """Note what stands where."""
        for entry in entries:
            inode = self.files.inode(entry.now)
            there = self.files.is_there(entry.now)
            self.known[entry.path] = _Known(there, inode, self.files.spelling(entry.now) if there else "")

    def mark(self, phase: str) -> None:
        """Write the marker."""
        me = myself()
        entries = [{"name": entry.path, **attrs.asdict(self.known[entry.path])} for entry in self.entries]
        self.files.system.write_record(
            self.files.at(self.live / SWAP),
            {"schema": 1, "pid": me.pid, "create_time": me.create_time, "phase": phase, "entries": entries},
        )

    def put_all(self) -> None:
        """Every entry in its place.

        Raises:
            OSError: one cannot be; `at_work` is its path.
            StoreError: the marker cannot be written.
        """
        patience, waiting = self.files.patience(), list(self.entries)
        while waiting:
            entry = waiting.pop(0)
            self.at_work = entry.path
            try:
                self._put(patience, entry)
            except OSError as error:
                parts = self._parts(entry, error)
                if parts is None:
                    raise
                place = self.entries.index(entry)
                self.entries[place : place + 1] = parts
                self.look(parts)
                self.mark("swapping")
                waiting[:0] = parts

    def _put(self, patience: Patience, entry: _Entry) -> None:
        """One entry: the new one in its place, the old one aside; of one that goes there is no new one."""
        files = self.files
        if entry.path in self.going:
            files.rename(patience, entry.now, entry.old)
        elif not files.is_there(entry.now):
            files.rename(patience, entry.staged, entry.now)
        elif files.exchange(patience, entry.staged, entry.now):
            files.rename(patience, entry.staged, entry.old)
        else:
            files.rename(patience, entry.now, entry.old)
            files.rename(patience, entry.staged, entry.now)

    def _parts(self, entry: _Entry, error: OSError) -> list[_Entry] | None:
        """The names in a folder that something in use keeps from being renamed, those with the same bytes left out; None when
        that helps nothing: no such folder, or it was moved already.
        """
        files = self.files
        if not files.rules.opens_folders or fault_of(error) is not Fault.IN_USE:
            return None
        if not (files.is_folder(entry.now) and files.is_folder(entry.staged)):
            return None
        was, new = ({folded(n): n for n in files.names(folder)} for folder in (entry.now, entry.staged))
        parts, gone = [], []
        for key in sorted({*was, *new}):
            part = _Entry(self.live, f"{entry.path}/{new.get(key) or was[key]}")
            if key not in new:
                gone.append(part)
            elif not (key in was and files.is_same_file(part.now, part.staged)):
                parts.append(part)
        self.going.update(part.path for part in gone)
        return parts + gone

    def undo(self) -> None:
        """Every entry as it was, the last one first; one that cannot be does not keep the others. Running it again is safe.

        Raises:
            OSError: the first that could not; the marker stays. `at_work` is its path.
        """
        patience, failed = self.files.patience(), None
        for entry in reversed(self.entries):
            try:
                self._back(patience, entry)
            except OSError as error:
                if failed is None:
                    failed, self.at_work = error, entry.path
        if failed is not None:
            raise failed
        self.files.system.sync(self.files.at(self.live))
        for top in self.tops():
            self.files.discard(top)
        _drop_marker(self.files, self.live)

    def _back(self, patience: Patience, entry: _Entry) -> None:
        files, known = self.files, self.known[entry.path]
        now = entry.now.with_name(known.spelled) if known.spelled else entry.now
        if files.is_there(entry.old):
            if files.is_there(entry.now):
                files.rename(patience, entry.now, entry.staged)
            files.rename(patience, entry.old, now)
        elif not known.was_there:
            if not files.is_there(entry.staged) and files.is_there(entry.now):
                files.rename(patience, entry.now, entry.staged)  # it was new
        elif known.before and files.inode(entry.staged) == known.before:
            files.rename(patience, entry.staged, entry.old)  # exchanged, and not yet set aside
            files.rename(patience, entry.now, entry.staged)
            files.rename(patience, entry.old, now)

    def tops(self) -> list[PurePath]:
        """Staging places of the top folder."""
        return list(dict.fromkeys(entry.top for entry in self.entries))

    def finish(self) -> bool:
        """Remove the old copies; whether all of them went. What stays changes nothing: the new tree is whole."""
        left = False
        for place in (*(entry.old for entry in self.entries), *self.tops()):
            try:
                self.files.discard(place)
            except (OSError, StoreError):
                left = True
        if not left:
            try:
                _drop_marker(self.files, self.live)
            except (OSError, StoreError):
                return False
        return not left


def swap_tree(
    new: PurePath,
    live: PurePath,
    *,
    check: Iterable[str] | None = None,
    gone: Iterable[str] = (),
    installed: Mapping[str, str] | None = None,
    paths: Iterable[str] = (),
    files: SwapFiles = HERE,
    stage: Stage = stage_tree,
) -> None:
    """Put every top-level entry of a new tree in place of the live one's. All of them, or none.

    Args:
        new: whole new tree, judged and complete.
        live: the live tree.
        check: names to swap; default every entry of `new` that is not preserved.
        gone: names of the live tree that go with the swap, from `gone_entries`; last, so that whoever mends a killed swap finds either
            the old code with everything it needs, or the new code.
        installed: hashes of what was installed; the tree is compared with them once more just before the first rename.
        paths: of every file of the new tree, to know whether they can be opened in the live one.
        files: the system's calls and rules. Old copies that it cannot remove are known to the marker and go at the next recovery.
        stage: copies entries to where they are staged.

    Raises:
        UpdateError: nothing is different from before; or, said so, the next launch puts it back.
        StoreError: the marker cannot be written.
    """
    _settle(live, files)
    names = sorted(check or files.names(new))
    entries = [_Entry(live, name) for name in names if name not in PRESERVED]
    if not entries:
        raise UpdateError("The new tree is empty.", stop_class="checkout_move_failed")
    leaving = sorted(set(gone) - set(PRESERVED))
    entries += [_Entry(live, name) for name in leaving]
    _check_places(files, live, entries, paths)
    swap = _Swap(live, files, entries)
    _ready(swap, new, leaving, installed, stage)
    try:
        swap.put_all()
        files.system.sync(files.at(live))
        swap.mark("done")
    except (OSError, StoreError) as error:
        _take_back(swap, error)
        raise
    swap.finish()


def _settle(live: PurePath, files: SwapFiles) -> None:
    """An earlier swap is over: an old copy that stayed would be taken for what stood there before this one."""
    done = recover_swap(live, files=files)
    if done == "busy":
        raise UpdateError("Another update is swapping this tree.", stop_class="lock_held")
    if done == "left":
        left = [name for name in files.names(live) if name.endswith((OLD, STAGING))]
        raise UpdateError(
            f"What an earlier update put aside cannot be removed: {clean(', '.join(left[:3]), 200) or 'old copies below its folders'}.",
            stop_class="files_in_use",
            advice="Close what uses it or remove it, then try again. Nothing was changed.",
        )
    _drop_marker(files, live)


def _check_places(files: SwapFiles, live: PurePath, entries: Sequence[_Entry], paths: Iterable[str]) -> None:
    tops = {entry.now for entry in entries}
    mounted = [place for place in files.mounted(live) if {place, *place.parents} & tops]
    if mounted:
        raise UpdateError(
            f"Something is mounted at {clean(str(mounted[0]), 200)}: a swap would empty it.",
            stop_class="files_in_use",
            advice="Unmount it for the update. Nothing was changed.",
        )
    long = files.rules.too_long(live, paths)
    if long is not None:
        raise UpdateError(
            f"{clean(long[0], 120)} would have a path of {long[1]} characters here; {files.rules.longest} can be opened.",
            stop_class="checkout_move_failed",
            advice="Move the install to a folder with a shorter path. Nothing was changed.",
        )


def _ready(
    swap: _Swap, new: PurePath, leaving: list[str], installed: Mapping[str, str] | None, stage: Stage
) -> None:
    """Stage everything and note it in the marker: what stands where, and the names that go. Nothing live is touched."""
    files = swap.files
    try:
        for entry in swap.entries:
            files.discard(entry.top)
            files.discard(entry.old)  # nothing tells of it, and the entry itself is there (`recover_swap`)
        stage(new, swap.live, {entry.path: entry.staged for entry in swap.entries})
        if installed is not None and (dirty := changed_files(Path(swap.live), installed)):
            raise UpdateError(
                f"Files were changed meanwhile, for example {clean(dirty[0], 120)}.",
                stop_class="local_changes_blocked",
            )
        swap.going = {name for name in leaving if not files.is_there(swap.live / f"{name}{STAGING}")}
        swap.look(swap.entries)
        swap.mark("swapping")
    except (OSError, StoreError, UpdateError) as error:
        for top in swap.tops():
            files.discard(top)
        if isinstance(error, UpdateError):
            raise
        fault = _fault(error)
        raise UpdateError(
            f"The new tree cannot be staged: {clean(error, 200)}.",
            stop_class=STOP_CLASS[fault],
            advice="Free some space." if fault is Fault.FULL else "Nothing was changed.",
        ) from error


def _fault(error: Exception) -> Fault:
    """What kept a tree from being staged; a copy of a whole folder tells it in words, a record by its cause."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if isinstance(cause, shutil.Error):
        full = any(os.strerror(number) in str(cause) for number in (errno.ENOSPC, errno.EDQUOT))
        return Fault.FULL if full else Fault.OTHER
    return fault_of(cause) if isinstance(cause, OSError) else Fault.OTHER


def _take_back(swap: _Swap, error: OSError | StoreError) -> None:
    """Undo, and say of which entry it was and why.

    Raises:
        UpdateError: the entry's failure, or that not everything could be put back.
    """
    blocked = swap.at_work
    try:
        swap.undo()
    except (OSError, StoreError) as stuck:
        raise UpdateError(
            f"{clean(blocked, 160)} cannot be replaced ({_why(error)}), and {clean(swap.at_work, 160)} cannot be put back ({_why(stuck)}).",
            stop_class="checkout_move_failed",
            advice="Nothing is lost. Close what uses the folder and start the command again: it puts the rest back.",
        ) from error
    if isinstance(error, StoreError):
        return
    fault = fault_of(error)
    advice = f"Close what uses it, then try again. {_AS_IT_WAS}" if fault is Fault.IN_USE else _AS_IT_WAS
    raise UpdateError(
        f"The new tree cannot be put in place: {clean(blocked, 160)}: {_why(error)}.",
        stop_class=STOP_CLASS[fault],
        advice=advice,
    ) from error


def _why(error: OSError | StoreError) -> str:
    if isinstance(error, StoreError):
        return clean(error.message, 160)
    said = clean(error.strerror or str(error), 120)
    return f"in use, or not ours to move: {said}" if fault_of(error) is Fault.IN_USE else said


def _drop_marker(files: SwapFiles, live: PurePath) -> None:
    for name in files.names(live):
        if name.startswith(PARTIAL):
            files.discard(live / name)
    files.system.remove_record(files.at(live / SWAP))


def recover_swap(live: PurePath, *, files: SwapFiles = HERE) -> str:
    """Finish or undo a swap whose process is gone; returns what was done.

    Args:
        live: the live tree.
        files: the system's calls and rules.

    Returns:
        `none`, `busy`, `undone`, `finished`, or `left`: the new tree is whole and old copies could not be removed.

    Raises:
        StoreError: the marker makes no sense, or the tree cannot be mended; the marker stays.
    """
    shown = clean(str(live / SWAP), 300)
    try:
        record: Any = files.system.read_record(files.at(live / SWAP))
    except RecordMissing:
        return _recover_unmarked(live, files)
    except StoreError as error:
        raise StoreError(error.message, advice=_BY_HAND) from error
    try:
        owner = Owner(pid=int(record["pid"]), create_time=float(record["create_time"]))
        known = {
            str(entry["name"]): _Known(
                bool(entry["was_there"]), int(entry.get("before", 0)), str(entry.get("spelled", ""))
            )
            for entry in record["entries"]
        }
        phase = str(record["phase"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{shown} makes no sense.", advice=_BY_HAND) from error
    if not all(map(_is_sound, known, (one.spelled for one in known.values()))):
        raise StoreError(f"{shown} names an entry that no swap has.", advice=_BY_HAND)
    if owner.pid != os.getpid() and is_alive(owner):
        return "busy"
    swap = _Swap(live, files, [_Entry(live, name) for name in known], known)
    if phase == "done":
        return "finished" if swap.finish() else "left"
    try:
        swap.undo()
    except OSError as error:
        raise StoreError(
            f"An interrupted swap of {clean(str(live), 200)} cannot be undone: {clean(swap.at_work, 160)}: {_why(error)}."
        ) from error
    return "undone"


def is_half_swapped(live: PurePath, *, files: SwapFiles = HERE) -> bool:
    """Whether a swap began and is neither whole nor undone; a whole one whose old copies wait for their removal is not."""
    try:
        record: Any = files.system.read_record(files.at(live / SWAP))
    except RecordMissing:
        return False
    except StoreError:
        return True  # cannot be told
    return not isinstance(record, dict) or record.get("phase") != "done"


def _is_sound(name: str, spelled: str) -> bool:
    """Whether a swap can have had such an entry."""
    parts = [*name.split("/"), spelled or "x"]
    return (
        parts[0] not in PRESERVED
        and not any(part in ("", ".", "..") or "\\" in part for part in parts)
        and "/" not in spelled
    )


def _recover_unmarked(live: PurePath, files: SwapFiles) -> str:
    """An old copy whose entry is missing, and no marker: somebody removed that. The copy is all there is (facts/update.md 5.3)."""
    lost = [
        name
        for name in files.names(live)
        if name.endswith(OLD) and not files.is_there(live / name.removesuffix(OLD))
    ]
    try:
        for name in lost:
            files.rename(files.patience(), live / name, live / name.removesuffix(OLD))
    except OSError as error:
        raise StoreError(f"{clean(lost[0], 160)} cannot be put back: {_why(error)}.") from error
    return "undone" if lost else "none"
