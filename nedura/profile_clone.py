"""What a new profile takes over from another one (facts/runtime.md 6.2). The rules are data; the copying is below them."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, Literal

from nedura.config import CONFIG_FILE, edit_config
from nedura.errors import ConfigError, StoreError
from nedura.records import make_folder, parse_json, read_bytes, write_bytes, write_json

__all__ = ["CHANNELS", "CloneKind", "clone_into", "is_channel_name", "left_out"]

CloneKind = Literal["basics", "all"]

BASICS: Final = (CONFIG_FILE, ".env", "SOUL.md", "skills", "memories/MEMORY.md", "memories/USER.md")
"""What `--clone` takes."""

PRIVATE: Final = (CONFIG_FILE, ".env", "auth.json", "SOUL.md")
"""Files that become private copies even where the source has a link."""

NEVER: Final = (
    "state.db", "state.db-wal", "state.db-shm", "sessions", "backups", "state-snapshots", "checkpoints", "cron",
    "gateway.pid", "gateway.lock", "gateway_state.json", "processes.json", "guest_handoff.json", "guest_handoff.json.lock",
    "active_profile", ".deleted",
)  # fmt: skip
"""Top-level names that no clone takes: history, backups, and everything about running processes and pending hand-offs."""

NEVER_FROM_ROOT: Final = (
    "profiles", "installs", "bin", "shared", "logs", ".worktrees", "node_modules", "envs", "venv", ".venv", "profile-exports",
)  # fmt: skip
"""Further ones when the source is the root: the install and what all profiles share."""

NEVER_ANYWHERE: Final = (
    "__pycache__",
    "*.pyc",
    "*.pyo",
    "*.sock",
    "*.tmp",
    "*.lock",
    ".*.tmp.*",
    ".guest_handoff.*",
    "*.sock.path",
)

CHANNELS: Final = (
    "telegram", "matrix", "discord", "slack", "whatsapp", "signal", "mattermost", "teams", "line", "feishu", "dingtalk",
    "wecom", "sms", "email", "bluebubbles", "webhook", "ntfy",
)  # fmt: skip
"""Chat platforms. Two profiles with one bot token would fight over it, so tokens never move unless asked for."""

_CHANNEL_SECTIONS: Final = frozenset({*CHANNELS, "platforms", "channels", "pairing"})
_CHANNEL_FILES: Final = ("pairing", "pairing.json", "platforms", "channels")


def is_channel_name(name: str) -> bool:
    """Whether a variable belongs to a chat platform: its bot token, allow-list or settings."""
    first = name.strip().removeprefix("export ").strip().lower().split("_", 1)[0]
    return first in CHANNELS


def left_out(path: str, *, from_root: bool, channels: bool) -> bool:
    """Whether `--clone-all` leaves out a path.

    Args:
        path: relative, with `/`.
        from_root: the source is the root home.
        channels: chat platforms are taken along.
    """
    top, *_ = parts = path.split("/")
    if top in NEVER or (from_root and top in NEVER_FROM_ROOT) or (not channels and top in _CHANNEL_FILES):
        return True
    return any(fnmatch.fnmatchcase(part, pattern) for part in parts for pattern in NEVER_ANYWHERE)


def _walk(source: Path, kind: CloneKind, skip: Callable[[str], bool]) -> Iterator[str]:
    """Relative paths of the files and links to copy, folders left out whole where they are left out."""
    tops = BASICS if kind == "basics" else sorted(os.listdir(source))
    for top in tops:
        if kind == "all" and skip(top):
            continue
        if (source / top).is_dir() and not (source / top).is_symlink():
            for base, folders, files in os.walk(source / top):
                here = Path(base).relative_to(source).as_posix()
                folders[:] = sorted(name for name in folders if not skip(f"{here}/{name}"))
                links = [name for name in folders if (Path(base) / name).is_symlink()]
                yield from (f"{here}/{name}" for name in (*links, *files) if not skip(f"{here}/{name}"))
        elif os.path.lexists(source / top):
            yield top


def clone_into(
    source: Path, target: Path, kind: CloneKind, *, from_root: bool, channels: bool = False
) -> None:
    """Copy what a clone takes into a folder that is being built.

    Args:
        source: home to copy from.
        target: the new home, not published yet.
        kind: `basics` (`--clone`) or `all` (`--clone-all`).
        from_root: the source is the root home.
        channels: take chat platforms along.

    Raises:
        StoreError: something cannot be read or written.
    """

    def skip(path: str) -> bool:
        return left_out(path, from_root=from_root, channels=channels)

    try:
        for path in _walk(source, kind, skip):
            make_folder((target / path).parent)
            _copy(source / path, target / path, private=path in PRIVATE)
    except OSError as error:
        raise StoreError(f"{source} cannot be copied: {error.strerror}.") from error
    if not channels:
        _strip_channels(target)
    _strip_grants(target / "auth.json")


def _copy(source: Path, target: Path, *, private: bool) -> None:
    if source.is_symlink() and not private:
        os.symlink(os.readlink(source), target)
        return
    if not source.is_file():
        return  # sockets, pipes and dangling links have no place in a copy
    mode = 0o600 if private else stat.S_IMODE(source.stat().st_mode) & 0o700 | 0o600
    write_bytes(target, source.read_bytes(), mode)


def _strip_channels(target: Path) -> None:
    env = target / ".env"
    if env.exists():
        lines = read_bytes(env).split(b"\n")
        kept = [
            line for line in lines if not is_channel_name(line.decode("utf-8", "replace").partition("=")[0])
        ]
        if kept != lines:
            write_bytes(env, b"\n".join(kept))
    if (target / CONFIG_FILE).exists():
        try:
            edit_config(target, _drop_sections)
        except ConfigError:
            return  # a config that cannot be read holds no section that anybody reads


def _drop_sections(content: MutableMapping[str, Any]) -> None:
    for section in (content, content.get("gateway")):
        if isinstance(section, MutableMapping):
            for name in [name for name in section if str(name).lower() in _CHANNEL_SECTIONS]:
                del section[name]


def _strip_grants(path: Path) -> None:
    """Drop every sign-in that rests on a single-use refresh token: two holders of one would revoke each other."""
    if not path.exists():
        return
    try:
        content = parse_json(read_bytes(path), path.name)
    except StoreError:
        path.unlink()
        return
    write_json(path, _without_grants(content))


def _without_grants(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_grants(item) for key, item in value.items() if not _is_grant(item)}
    if isinstance(value, list):
        return [_without_grants(item) for item in value if not _is_grant(item)]
    return value


def _is_grant(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("refresh_token") or value.get("anon_token"))
