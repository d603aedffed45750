"""Profiles as archives: exports without a secret, imports that trust nothing (facts/runtime.md 6.2, threats.md 7)."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

from nedura.errors import ProfileError, StoreError, UnsafePath
from nedura.homes import DEFAULT_PROFILE
from nedura.profiles import Profile, check_name, fill, find_profile, publish
from nedura.records import make_folder, write_bytes
from nedura.text import clean, redact

__all__ = ["Exported", "Imported", "Limits", "default_target", "export_profile", "import_profile"]

ROOT_ALLOWED: Final = (
    "config.yaml", "SOUL.md", "MEMORY.md", "USER.md", "todo.json", "system_prompt.md", "AGENTS.md", "CLAUDE.md",
    ".cursorrules", "desktop.json", "skills", "cron", "scripts", "sessions", "plugins", "memories", "knowledge", "preferences",
    "skins", "profile.yaml",
)  # fmt: skip
"""All that the default profile exports: its home holds the install and the other profiles too."""

NOT_EXPORTED: Final = frozenset(
    {
        "state.db",
        "state.db-wal",
        "state.db-shm",
        "backups",
        "state-snapshots",
        "checkpoints",
        "gateway_state.json",
        "processes.json",
    }
)
"""Left out of named profiles: databases that run, backups, and what only says something about processes."""

SECRET_FILES: Final = frozenset({"auth.json", ".env", "guest_handoff.json", "nous_auth.json"})

DROPPED: Final = frozenset(
    {
        *SECRET_FILES, "gateway.pid", "gateway.lock", "gateway_state.json", "processes.json", "spawn-ledger.json",
        ".update_response", ".update_prompt.json", ".update_exit_code", "active_profile", "node_modules", "venv", ".venv",
        "installs", "profiles", "bin", "shared", "plugins",
    }
)  # fmt: skip
"""Names at the top of an imported profile that could steer processes or carry somebody's trust: left out and listed."""

BLOCK: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class Limits:
    """What an archive may cost.

    Attributes:
        members: most entries.
        size: most unpacked bytes.
        ratio: most unpacked bytes for each packed one.
        depth: most folders in a path.
    """

    members: int = 20_000
    size: int = 2 * 1024**3
    ratio: int = 200
    depth: int = 32


@attrs.frozen(kw_only=True)
class Exported:
    """An export.

    Attributes:
        path: the archive.
        files: how many files it holds.
        left_out: what was left out, relative paths.
    """

    path: Path
    files: int
    left_out: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Imported:
    """An import.

    Attributes:
        profile: the new profile.
        files: how many files came in.
        left_out: what was left out, relative paths.
    """

    profile: Profile
    files: int
    left_out: tuple[str, ...] = ()


def default_target(root: Path, name: str, stamp: str) -> Path:
    """Where an export goes when nobody says: never into a checkout, where it would be committed one day.

    Args:
        root: the root home.
        name: the profile.
        stamp: `YYYYmmdd-HHMMSS`.
    """
    return root / "profile-exports" / f"{name}-{stamp}.tar.gz"


def export_profile(root: Path, text: str, target: Path) -> Exported:
    """Write a profile as an archive: one top folder, no credential file, every text redacted, no links.

    Args:
        root: the root home.
        text: the profile's name.
        target: the archive; must not exist.

    Raises:
        ProfileError: no such profile, or a target that is taken or lies in a git checkout.
        StoreError: it cannot be written.
    """
    profile = find_profile(root, text)
    target = Path(os.path.abspath(target))
    _check_target(target)
    make_folder(target.parent)
    left: list[str] = []
    buffer = io.BytesIO()
    files = 0
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for path in _exported(profile, left):
            data = _redacted((profile.home / path).read_bytes())
            info = tarfile.TarInfo(f"{profile.name}/{path}")
            info.size, info.mode = len(data), 0o600
            info.mtime = int((profile.home / path).stat().st_mtime)
            archive.addfile(info, io.BytesIO(data))
            files += 1
    write_bytes(target, buffer.getvalue())
    return Exported(path=target, files=files, left_out=tuple(left))


def _check_target(target: Path) -> None:
    if os.path.lexists(target):
        raise ProfileError(f"{clean(target, 200)} exists already.", advice="Choose another file.")
    for folder in target.parents:
        if folder.is_symlink():
            raise UnsafePath(f"{clean(folder, 200)} is a link.", advice="Name the real folder.")
        if (folder / ".git").exists():
            raise ProfileError(
                f"{clean(folder, 200)} is a git checkout; an export there could be committed.",
                advice="Choose a folder outside it.",
            )
    owner = next(folder for folder in target.parents if folder.exists()).stat().st_uid
    if owner != os.geteuid():
        raise UnsafePath(
            f"{clean(target.parent, 200)} belongs to another user.", advice="Use a folder of your own."
        )


def _secret(name: str) -> bool:
    """Whether a file may hold credentials: a store, its half-written temp file, or a damaged one that was put aside."""
    aside = name.endswith(".corrupt") or ".corrupt." in name
    return aside or name in SECRET_FILES or name.startswith((".auth.json", ".guest_handoff", ".nous_auth"))


def _unwanted(top: str, is_root: bool) -> bool:
    if is_root:
        return top not in ROOT_ALLOWED
    return _secret(top) or top in NOT_EXPORTED or top.endswith((".lock", ".sock", ".pid", ".sock.path"))


def _exported(profile: Profile, left: list[str]) -> Iterator[str]:
    is_root = profile.name == DEFAULT_PROFILE
    for top in sorted(os.listdir(profile.home)):
        if _unwanted(top, is_root):
            left.append(top)
        else:
            yield from _files(profile.home, top, left)


def _files(home: Path, top: str, left: list[str]) -> Iterator[str]:
    if not (home / top).is_dir() or (home / top).is_symlink():
        yield from (path for path in (top,) if _plain(home, path, left))
        return
    for base, folders, names in os.walk(home / top):
        here = Path(base).relative_to(home).as_posix()
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = f"{here}/{name}"
            if _secret(name):
                left.append(path)
            elif _plain(home, path, left):
                yield path


def _plain(home: Path, path: str, left: list[str]) -> bool:
    info = (home / path).lstat()
    if stat.S_ISREG(info.st_mode) and info.st_size <= 64 * BLOCK:
        return True
    left.append(path)
    return False


def _redacted(data: bytes) -> bytes:
    """Text with everything that looks like a credential masked; other bytes as they are."""
    if b"\0" in data[:8192]:
        return data
    try:
        return redact(data.decode("utf-8")).encode()
    except UnicodeDecodeError:
        return data


# --- import


def import_profile(root: Path, archive: Path, *, name: str = "", limits: Limits | None = None) -> Imported:
    """Make a profile of an archive: judged before it is unpacked, unpacked aside, published by one rename.

    Args:
        root: the root home.
        archive: a `.tar.gz`.
        name: what to call it; default the archive's top folder.
        limits: what it may cost.

    Raises:
        ProfileError: the name is impossible or taken.
        StoreError: the archive is unsafe or damaged; nothing was made.
    """
    limits = Limits() if limits is None else limits
    top, paths, left = _judge(archive, limits)
    if check_name(name or top) == DEFAULT_PROFILE:
        raise ProfileError(
            "An archive never becomes the default profile.", advice="Give it a name: --name NAME"
        )
    wanted = check_name(name or top, new=True)

    def build(home: Path) -> None:
        _unpack(archive, top, paths, home, limits)
        fill(home)

    return Imported(profile=publish(root, wanted, build), files=len(paths), left_out=tuple(left))


class _Counted(io.RawIOBase):
    """A gunzipped stream that ends in an error when it grows beyond what the packed bytes allow."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._packed = path.stat().st_size
        self._file = gzip.open(path)  # noqa: SIM115 - closed by `close`
        self._limit = min(limits.size, max(self._packed * limits.ratio, BLOCK)) + BLOCK
        self._read = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes."""
        data: bytes = self._file.read(BLOCK if size < 0 else size)
        self._read += len(data)
        if self._read > self._limit:
            raise StoreError(
                "The archive unpacks to more than it may.", advice="It may be a bomb; do not use it."
            )
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


@contextmanager
def _opened(path: Path, limits: Limits) -> Iterator[tarfile.TarFile]:
    try:
        with _Counted(path, limits) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive
    except FileNotFoundError as error:
        raise StoreError(f"{clean(path, 200)} does not exist.") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise StoreError(
            f"{clean(path, 200)} is no archive that can be read: {clean(error, 100)}."
        ) from error


def _parts(member: tarfile.TarInfo, limits: Limits) -> tuple[str, ...]:
    """The checked parts of a member's path.

    Raises:
        StoreError: it leads anywhere but down.
    """
    name, shown = member.name, clean(member.name, 100)
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or "\\" in name or len(parts) > limits.depth or len(name) > 1024:
        raise StoreError(f"The archive holds a path that is not allowed: {shown!r}.")
    for part in parts:
        if (
            part in (".", "..")
            or not part.isprintable()
            or len(part.encode()) > 255
            or part.endswith((" ", "."))
        ):
            raise StoreError(f"The archive holds a name that is not allowed: {shown!r}.")
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise StoreError(f"The archive holds something that is no plain file or folder: {shown!r}.")
    return parts


def _judge(archive: Path, limits: Limits) -> tuple[str, tuple[str, ...], list[str]]:
    """The top folder, the paths to take and what is left out. Reads everything, writes nothing."""
    tops: set[str] = set()
    seen: dict[str, bool] = {}
    take: list[str] = []
    left: list[str] = []
    with _opened(archive, limits) as members:
        for count, member in enumerate(members, 1):
            if count > limits.members:
                raise StoreError(f"The archive holds more than {limits.members} entries.")
            parts = _parts(member, limits)
            tops.add(parts[0])
            _no_twin(seen, parts, member.isdir())
            path = "/".join(parts[1:])
            if path and member.isfile():
                (left if _dropped(path) else take).append(path)
            elif not path and member.isfile():
                raise StoreError("The archive holds a file beside its top folder.")
    if len(tops) != 1:
        raise StoreError("The archive must hold exactly one top folder.")
    return tops.pop(), tuple(take), left


def _dropped(path: str) -> bool:
    top, _, rest = path.partition("/")
    name = path.rpartition("/")[2]
    return top in DROPPED or _secret(name) or (not rest and top.endswith((".sock", ".lock", ".pid")))


def _no_twin(seen: dict[str, bool], parts: tuple[str, ...], is_folder: bool) -> None:
    """No path twice, no two that differ only in case or form, no file where another entry needs a folder."""
    key = ""
    for depth, part in enumerate(parts, 1):
        key = f"{key}/{unicodedata.normalize('NFKC', part).casefold()}"
        last = depth == len(parts)
        folder = not last or is_folder
        if key in seen and not (seen[key] and folder):
            raise StoreError(f"The archive holds one path twice: {clean('/'.join(parts), 100)!r}.")
        seen[key] = folder


def _unpack(archive: Path, top: str, paths: tuple[str, ...], home: Path, limits: Limits) -> None:
    """Second pass: only what was judged, each file below the new folder, without a link on its way."""
    wanted = set(paths)
    with _opened(archive, limits) as members:
        for member in members:
            path = "/".join(_parts(member, limits)[1:])
            if not member.isfile() or path not in wanted:
                continue
            wanted.discard(path)
            stream = members.extractfile(member)
            if stream is None:
                raise StoreError(f"The archive changed while it was read: {clean(top, 60)}.")
            make_folder((home / path).parent)
            write_bytes(home / path, stream.read(), 0o700 if member.mode & 0o100 else 0o600)
    if wanted:
        raise StoreError("The archive changed while it was read.")
