"""`config.yaml`: bounded reads with errors that name line and column, and one locked write that keeps comments and unknown keys.

What a person wrote stays as it is: the file is round-tripped, never re-made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from nedura.errors import ConfigError, RecordMissing, StoreError
from nedura.locks import locked
from nedura.records import make_folder, read_bytes, write_bytes
from nedura.text import clean

__all__ = [
    "CONFIG_FILE",
    "Config",
    "config_path",
    "edit_config",
    "plain",
    "read_config",
    "replace_config",
    "set_value",
    "unset_value",
]

CONFIG_FILE: Final = "config.yaml"
MAX_BYTES: Final = 1024 * 1024

_T = TypeVar("_T")


def config_path(home: Path) -> Path:
    """The config file of a home."""
    return home / CONFIG_FILE


def plain(value: Any) -> Any:
    """A YAML value as ordinary Python data (dict, list, str, numbers, bool, None)."""
    match value:
        case Mapping():
            return {plain(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set():
            return [plain(item) for item in value]
        case bool() | None:
            return value
        case str():
            return str(value)
        case int():
            return bool(value) if type(value).__name__ == "ScalarBoolean" else int(value)
        case float():
            return float(value)
        case _:
            return str(value)


@attrs.frozen
class Config:
    """What a config file holds. A missing file is an empty config.

    Attributes:
        data: the file's content as read, for typed access use the methods.
        path: where it came from.
    """

    data: Mapping[str, Any] = attrs.field(factory=dict)
    path: Path = Path(CONFIG_FILE)

    def get(self, key: str, default: Any = None) -> Any:
        """Value of a dotted key as ordinary Python data; `default` when it is missing or null."""
        node: Any = self.data
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return default
            node = node[part]
        return default if node is None else plain(node)

    def text(self, key: str, default: str = "") -> str:
        """A dotted key that must be text.

        Raises:
            ConfigError: it is something else; names line and column.
        """
        return self._typed(key, default, str, "text")

    def flag(self, key: str, default: bool = False) -> bool:
        """A dotted key that must be true or false.

        Raises:
            ConfigError: it is something else; names line and column.
        """
        return self._typed(key, default, bool, "true or false")

    def whole(self, key: str, default: int = 0) -> int:
        """A dotted key that must be a whole number.

        Raises:
            ConfigError: it is something else; names line and column.
        """
        return self._typed(key, default, int, "a whole number")

    def where(self, key: str) -> str:
        """`config.yaml line 3, column 9` of a dotted key; the file's name when it has no position."""
        node: Any = self.data
        *folders, last = key.split(".")
        for part in folders:
            node = node.get(part) if isinstance(node, Mapping) else None
        try:
            line, column = node.lc.value(last)
        except (AttributeError, KeyError, TypeError):
            return self.path.name
        return f"{self.path.name} line {line + 1}, column {column + 1}"

    def _typed(self, key: str, default: _T, kind: type[_T], name: str) -> _T:
        value = self.get(key)
        if value is None:
            return default
        if type(value) is not kind:
            raise ConfigError(
                f"{self.where(key)}: {key} must be {name}, not {clean(value, 60)!r}.",
                advice=f"Set it with: nedura config set {key} VALUE",
            )
        return value


def _load(path: Path) -> tuple[Any, bytes]:
    try:
        data = read_bytes(path, MAX_BYTES)
    except RecordMissing:
        return {}, b""
    except StoreError as error:
        raise ConfigError(error.message, advice=error.advice) from error
    from nedura._yaml import parse_yaml

    try:
        content = parse_yaml(data, path.name)
    except ConfigError as error:
        raise ConfigError(error.message, advice="Correct it: nedura config edit") from error
    if content is None:
        return {}, data
    if not isinstance(content, MutableMapping):
        raise ConfigError(f"{path.name} line 1, column 1: the file must hold keys and values.")
    return content, data


def read_config(home: Path) -> Config:
    """Read the config of a home. A missing file is an empty config.

    Raises:
        ConfigError: it cannot be read or understood; names line and column.
    """
    path = config_path(home)
    return Config(_load(path)[0], path)


def edit_config(home: Path, change: Callable[[MutableMapping[str, Any]], None]) -> Config:
    """Change the config of a home in one locked, atomic write that keeps comments, order and unknown keys.

    Args:
        home: the home; made when missing.
        change: edits the content in place; called under the lock, must not wait for anything.

    Raises:
        ConfigError: the file cannot be understood or written; it is unchanged then.
        LockTimeout: another process keeps it locked.
    """
    from nedura._yaml import dump_yaml, empty_map, parse_yaml

    path = config_path(home)
    make_folder(home)
    with locked(home / f"{CONFIG_FILE}.lock", what="the config"):
        content, before = _load(path)
        if not content:
            content = empty_map(before)
        change(content)
        after = dump_yaml(content, before)
        if after != before:
            parse_yaml(after, path.name)  # what we could not read back is never written
            try:
                write_bytes(path, after)
            except StoreError as error:
                raise ConfigError(error.message, advice=error.advice) from error
        return Config(_load(path)[0], path)


def replace_config(home: Path, after: bytes, before: bytes) -> None:
    """Put a whole edited file in place, if it can be read and nobody else has changed the file meanwhile.

    Args:
        home: whose config.
        after: the new content.
        before: the content that was edited.

    Raises:
        ConfigError: it cannot be read, or the file has changed since.
    """
    from nedura._yaml import parse_yaml

    path = config_path(home)
    content = parse_yaml(after, path.name)
    if content is not None and not isinstance(content, MutableMapping):
        raise ConfigError(f"{path.name} line 1, column 1: the file must hold keys and values.")
    make_folder(home)
    with locked(home / f"{CONFIG_FILE}.lock", what="the config"):
        try:
            now = read_bytes(path, MAX_BYTES)
        except RecordMissing:
            now = b""
        if now != before:
            raise ConfigError(f"{path.name} was changed by somebody else meanwhile.", advice="Edit it again.")
        write_bytes(path, after)


def set_value(content: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, making the sections it needs. For use in `edit_config`.

    Raises:
        ConfigError: a part of the key is a value, not a section, or the key is a section that the value would wipe out.
    """
    *sections, last = key.split(".")
    if not all((*sections, last)):
        raise ConfigError(f"{clean(key, 60)!r} is no key.")
    for part in sections:
        if content.get(part) is None:
            content[part] = {}
        content = content[part]
        if not isinstance(content, MutableMapping):
            raise ConfigError(f"{clean(key, 60)}: {clean(part, 60)} is a value, not a section.")
    if isinstance(content.get(last), Mapping) and content[last] and not isinstance(value, Mapping):
        raise ConfigError(
            f"{clean(key, 60)} is a section with keys of its own; a value would remove them all.",
            advice=f"Set one of them: nedura config set {clean(key, 60)}.KEY VALUE",
        )
    content[last] = value


def unset_value(content: MutableMapping[str, Any], key: str) -> bool:
    """Remove a dotted key; False when it was not there. For use in `edit_config`."""
    *sections, last = key.split(".")
    for part in sections:
        inner = content.get(part)
        if not isinstance(inner, MutableMapping):
            return False
        content = inner
    if last not in content:
        return False
    del content[last]
    return True
