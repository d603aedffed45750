"""A file system in memory that refuses what Windows refuses, with Windows' own error codes. Written from Microsoft's documentation,
not from our rules: names without case, open files, running programs, paths of 260 characters, device names.

What it does not show: rights (ACLs), junctions, other volumes, and how a real NTFS orders its writes before a power cut.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PureWindowsPath
from typing import Any, Literal

import attrs

from nedura.errors import RecordMissing

MAX_PATH = 260
Tree = Mapping[str, str]
How = Literal["plain", "shares deletion", "program", "exclusive"]

_ERRNO = {
    2: errno.ENOENT,
    3: errno.ENOENT,
    5: errno.EACCES,
    32: errno.EACCES,
    123: errno.EINVAL,
    183: errno.EEXIST,
    206: errno.ENOENT,
}
_DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"} | {
    f"{kind}{digit}" for kind in ("COM", "LPT") for digit in "0123456789\u00b9\u00b2\u00b3"
}  # fmt: skip


class Killed(BaseException):
    """The process was ended at this call."""


def refused(code: int, path: str) -> OSError:
    """As Python tells it on Windows: the system's code beside an errno."""
    error = OSError(_ERRNO[code], f"[WinError {code}]", path)
    error.winerror = code  # type: ignore[attr-defined]
    return error


@attrs.define(eq=False)
class Node:
    """A file, or a folder when it has no content."""

    number: int
    content: Any = None
    children: dict[str, tuple[str, Node]] | None = None

    def below(self) -> Iterator[Node]:
        for _, child in (self.children or {}).values():
            yield child
            yield from child.below()


@attrs.define(eq=False)
class Holder:
    """Somebody who has a file or folder open, until a moment."""

    node: Node
    how: How
    until: float


def win32_parts(path: str) -> list[str]:
    """The names that a path leads through, as the Win32 layer reads them: the long form literally, any other one with its rules."""
    if path.startswith("\\\\?\\"):
        return path[4:].split("\\")
    if len(path.encode("utf-16-le")) // 2 >= MAX_PATH:
        raise refused(206, path)
    drive, *rest = path.replace("/", "\\").split("\\")
    parts = [drive]
    for name in rest:
        plain = name.rstrip(". ")
        if plain.split(".")[0].rstrip(" ").upper() in _DEVICES:
            raise refused(5, path)
        if ":" in name or any(ch in '<>"|?*' or ord(ch) < 32 for ch in name) or not plain:
            raise refused(123, path)
        parts.append(plain)
    return parts


@attrs.define
class WindowsFiles:
    """The system; drive C: is there. `kill_at`: the call that changes something and is never finished, counted from 1."""

    root: Node = attrs.field(factory=lambda: Node(1, children={}))
    holders: list[Holder] = attrs.field(factory=list)
    now: float = 0.0
    slept: list[float] = attrs.field(factory=list)
    kill_at: int = 0
    changes: int = 0
    on_change: Callable[[WindowsFiles], None] | None = None
    _last: int = 1

    # --- what a test does

    def write(self, folder: PureWindowsPath, tree: Tree) -> None:
        """Files by path."""
        for path, text in tree.items():
            node = self.root
            for name in str(folder / path).split("\\"):
                assert node.children is not None
                node = node.children.setdefault(name.casefold(), (name, self._node(folder=True)))[1]
            node.children, node.content = None, text

    def read_tree(self, folder: PureWindowsPath) -> dict[str, Any]:
        """Files by path, as they are spelled; an empty folder with a slash."""

        def walk(node: Node, before: str) -> Iterator[tuple[str, Any]]:
            for name, child in (node.children or {}).values():
                if child.children is None:
                    yield before + name, child.content
                else:
                    yield from walk(child, f"{before}{name}/")

        return dict(walk(self._find(str(folder)), ""))

    def hold(self, path: PureWindowsPath, how: How, seconds: float = 1e9) -> Holder:
        """Somebody opens it."""
        holder = Holder(self._find(str(path)), how, self.now + seconds)
        self.holders.append(holder)
        return holder

    def copy(
        self, new: PureWindowsPath, live: PureWindowsPath, places: Mapping[str, PureWindowsPath]
    ) -> None:
        """Stage entries."""
        for name, place in places.items():
            try:
                source = self._find(str(new / name))
            except OSError:
                continue
            self._changing()
            parent, last = self._parent(str(place) if len(str(place)) < 240 else f"\\\\?\\{place}")
            assert parent.children is not None
            parent.children[last.casefold()] = (last, self._copied(source))

    # --- what is asked of a system

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        parent, name = self._parent(target)
        assert parent.children is not None
        there = parent.children.get(name.casefold())
        if there is not None and there[1] is not node:
            raise refused(183, target)
        if any(h.how in ("plain", "exclusive") for h in self._open(node)):
            raise refused(32, source)
        if any(self._open(child) for child in node.below()):
            raise refused(5, source)
        self._changing()
        before, last = self._parent(source)
        assert before.children is not None
        del before.children[last.casefold()]
        parent.children[name.casefold()] = (name, node)

    def exchange(self, one: str, other: str) -> bool:
        return False

    def lstat(self, path: str) -> os.stat_result:
        node = self._find(path)
        mode = stat.S_IFREG | 0o666 if node.children is None else stat.S_IFDIR | 0o777
        return os.stat_result((mode, node.number, 1, 1, 0, 0, 0, 0, 0, 0))

    def listdir(self, folder: str) -> list[str]:
        return [name for name, _ in (self._find(folder).children or {}).values()]

    def read(self, path: str) -> bytes:
        node = self._find(path)
        if any(h.how == "exclusive" for h in self._open(node)):
            raise refused(32, path)
        return repr(node.content).encode()

    def remove(self, path: str) -> None:
        try:
            node = self._find(path)
        except FileNotFoundError:
            return
        for name, _ in list((node.children or {}).values()):
            self.remove(f"{path}\\{name}")
        if any(h.how == "program" for h in self._open(node)):
            raise refused(5, path)
        if any(h.how != "shares deletion" for h in self._open(node)):
            raise refused(32, path)
        self._changing()
        parent, last = self._parent(path)
        assert parent.children is not None
        del parent.children[last.casefold()]

    def sync(self, folder: str) -> None:
        self._find(folder)

    def write_record(self, path: str, value: Any) -> None:
        self._changing()
        parent, name = self._parent(path)
        assert parent.children is not None
        parent.children[name.casefold()] = (name, Node(self._number(), value))

    def read_record(self, path: str) -> Any:
        try:
            return self._find(path).content
        except FileNotFoundError as error:
            raise RecordMissing(path) from error

    def remove_record(self, path: str) -> None:
        self.remove(path)

    def mounts(self) -> Iterable[str]:
        return []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    # --- inside

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _node(self, *, folder: bool = False) -> Node:
        return Node(self._number(), children={} if folder else None)

    def _copied(self, node: Node) -> Node:
        children = node.children
        if children is None:
            return Node(self._number(), node.content)
        return Node(
            self._number(), children={k: (n, self._copied(child)) for k, (n, child) in children.items()}
        )

    def _open(self, node: Node) -> list[Holder]:
        return [holder for holder in self.holders if holder.node is node and holder.until > self.now]

    def _changing(self) -> None:
        self.changes += 1
        if self.changes == self.kill_at:
            raise Killed
        if self.on_change is not None:
            self.on_change(self)

    def _parent(self, path: str) -> tuple[Node, str]:
        *before, name = win32_parts(path)
        return self._walk(before, path), name

    def _find(self, path: str) -> Node:
        return self._walk(win32_parts(path), path)

    def _walk(self, parts: Iterable[str], path: str) -> Node:
        node = self.root
        for name in parts:
            found = (node.children or {}).get(name.casefold())
            if found is None:
                raise refused(2, path)
            node = found[1]
        return node
