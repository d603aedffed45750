"""Profiles as archives: exports without a secret, imports that trust nothing (facts/runtime.md 6.2, threats.md 7)."""

from __future__ import annotations

import codecs
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
        "home",
    }
)
"""Left out of named profiles: databases that run, backups, what only says something about processes, and the tools' own HOME."""

SECRET_FILES: Final = frozenset(
    {
        "auth.json", ".env", "guest_handoff.json", "nous_auth.json", ".netrc", "_netrc", ".git-credentials", ".pgpass",
        ".pypirc", ".npmrc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", "credentials.json",
    }
)  # fmt: skip
"""Files that hold credentials wherever they lie: ours, and those of the tools that an agent works with."""

SECRET_FOLDERS: Final = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
SECRET_ENDINGS: Final = (".pem", ".key", ".p12", ".pfx", ".kdbx")

DROPPED: Final = frozenset(
    {
        *SECRET_FILES, "gateway.pid", "gateway.lock", "gateway_state.json", "processes.json", "spawn-ledger.json",
        ".update_response", ".update_prompt.json", ".update_exit_code", "active_profile", "node_modules", "venv", ".venv",
        "installs", "profiles", "bin", "shared", "plugins",
    }
)  # fmt: skip
"""Names at the top of an imported profile that could steer processes or carry somebody's trust: left out and listed."""

BLOCK: Final = 1024 * 1024
MAX_FILE: Final = 64 * BLOCK
"""Largest file in bytes that goes into an archive or comes out of one: it is held in memory."""

MAX_HEADER: Final = 64 * 1024
"""Largest extended header in bytes: tarfile reads it whole, before anybody can judge the member behind it."""


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


def export_profile(root: Path, text: str, target: Path, *, limits: Limits | None = None) -> Exported:
    """Write a profile as an archive: one top folder, no credential file, every text redacted, no links.

    What an import would refuse (a strange name, one path in two spellings, a huge file) and what cannot be read is left out and
    named: one such file must not make the whole archive useless on the day it is needed.

    Args:
        root: the root home.
        text: the profile's name.
        target: the archive; must not exist.
        limits: what an import would take.

    Raises:
        ProfileError: no such profile, a target that is taken or lies in a git checkout, or more than an import takes.
        StoreError: it cannot be written.
    """
    limits = Limits() if limits is None else limits
    profile = find_profile(root, text)
    target = Path(os.path.abspath(target))
    _check_target(target)
    make_folder(target.parent)
    left: list[str] = []
    buffer = io.BytesIO()
    files = total = 0
    seen: dict[str, bool] = {}
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for path in _exported(profile, left):
            info = tarfile.TarInfo(f"{profile.name}/{path}")
            data = _taken(profile.home / path, info, seen, limits)
            if data is None:
                left.append(path)
                continue
            files, total = files + 1, total + len(data)
            _check_room(profile.name, files, total, limits)
            archive.addfile(info, io.BytesIO(data))
    write_bytes(target, buffer.getvalue())
    return Exported(path=target, files=files, left_out=tuple(left))


def _check_room(name: str, files: int, size: int, limits: Limits) -> None:
    if files > limits.members or size > limits.size:
        raise ProfileError(
            f"{name} holds more than an archive may ({limits.members} files, {limits.size // 1024**3} GiB).",
            advice="Move what is large out of its folder (workspace, sessions) and export it again.",
        )


def _taken(path: Path, info: tarfile.TarInfo, seen: dict[str, bool], limits: Limits) -> bytes | None:
    """The bytes that go into the archive, with the member's facts filled in; None for a file that is left out."""
    try:
        _no_twin(seen, _parts(info, limits), is_folder=False)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            fact = os.fstat(handle)
            data = file.read(MAX_FILE + 1) if stat.S_ISREG(fact.st_mode) else None
    except (OSError, StoreError):
        return None  # the caller names it
    if data is None or len(data) > MAX_FILE:
        return None
    data = _redacted(data)
    info.size, info.mode, info.mtime = len(data), 0o700 if fact.st_mode & 0o100 else 0o600, int(fact.st_mtime)
    return data


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
    """Whether a file may hold credentials: a store, its half-written temp file, a copy of one, or one that was put aside."""
    name = name.casefold()
    aside = name.endswith(".corrupt") or ".corrupt." in name
    ours = name.startswith((".auth.json", ".guest_handoff", ".nous_auth", ".env.", ".env~", "auth.json."))
    return aside or ours or name in SECRET_FILES or name.endswith(SECRET_ENDINGS)


def _unwanted(top: str, is_root: bool) -> bool:
    if is_root:
        return top not in ROOT_ALLOWED
    return (
        _secret(top)
        or top in SECRET_FOLDERS
        or top in NOT_EXPORTED
        or top.endswith((".lock", ".sock", ".pid", ".sock.path"))
    )


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

    def unread(error: OSError) -> None:
        left.append(os.path.relpath(error.filename, home))

    for base, folders, names in os.walk(home / top, onerror=unread):
        here = Path(base).relative_to(home).as_posix()
        left.extend(f"{here}/{name}" for name in folders if name in SECRET_FOLDERS)
        folders[:] = sorted(name for name in folders if name not in {"__pycache__", *SECRET_FOLDERS})
        for name in sorted(names):
            path = f"{here}/{name}"
            if _secret(name):
                left.append(path)
            elif _plain(home, path, left):
                yield path


def _plain(home: Path, path: str, left: list[str]) -> bool:
    try:
        info = (home / path).lstat()
    except OSError:
        left.append(path)
        return False
    if stat.S_ISREG(info.st_mode) and info.st_size <= MAX_FILE:
        return True
    left.append(path)
    return False


def _redacted(data: bytes) -> bytes:
    """Text with everything that looks like a credential masked, whatever its encoding; binary data as it is."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        codings: tuple[str, ...] = ("utf-16",)
    elif b"\0" in data[:8192]:
        return data
    else:
        codings = ("utf-8", "latin-1")  # the second reads any bytes and gives the same ones back
    for coding in codings:
        try:
            text = data.decode(coding)
        except UnicodeDecodeError:
            continue
        masked = redact(text)
        return data if masked == text else masked.encode(coding)
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
        fact = path.stat()
        if not stat.S_ISREG(fact.st_mode):  # a pipe would wait for ever, and it is read twice
            raise StoreError(f"{clean(path, 200)} is no file.", advice="Save the archive to a file first.")
        self._packed = fact.st_size
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


class _Member(tarfile.TarInfo):
    """A member whose extended headers are bounded: the library reads them whole, however long they say they are."""

    _EXTENDED: Final = (
        tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
    )  # fmt: skip

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in self._EXTENDED and not 0 <= self.size <= MAX_HEADER:
            raise StoreError("The archive holds a header that is larger than it may be.")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


@contextmanager
def _opened(path: Path, limits: Limits) -> Iterator[tarfile.TarFile]:
    try:
        with (
            _Counted(path, limits) as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive,
        ):
            yield archive
    except FileNotFoundError as error:
        raise StoreError(f"{clean(path, 200)} does not exist.") from error
    except RecursionError as error:  # the library reads a chain of headers by calling itself
        raise StoreError(f"{clean(path, 200)} holds too many headers in a row.") from error
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
            if member.size > MAX_FILE:
                raise StoreError(
                    f"The archive holds a file of more than {MAX_FILE // BLOCK} MiB: {clean(member.name, 100)!r}."
                )
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
