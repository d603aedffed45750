"""`nedura config ...`"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nedura.config import config_path, edit_config, read_config, replace_config, set_value
from nedura.config_keys import find_key, parse_value
from nedura.errors import ConfigError, NeduraError, RecordMissing, RefusedError
from nedura.homes import process_home
from nedura.records import read_bytes, write_bytes
from nedura.text import clean, redact
from nedura_cli.output import Output

__all__ = ["edit", "get", "path", "set", "show"]

_SECRET_WORDS = ("token", "secret", "password", "passwd", "api_key", "apikey", "authorization", "private_key")


def masked(value: Any, key: str = "") -> Any:
    """A value with everything that is named or looks like a secret masked."""
    if isinstance(value, dict):
        return {str(name): masked(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value]
    if value is not None and any(word in key.lower().replace("-", "_") for word in _SECRET_WORDS):
        return "[redacted]"
    return redact(value) if isinstance(value, str) else value


def _shown(value: Any) -> str:
    return (
        clean(value, 2000) if isinstance(value, str) else clean(json.dumps(value, ensure_ascii=False), 2000)
    )


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        return [(prefix, value)]
    return [
        pair
        for name, item in value.items()
        for pair in _flat(item, f"{prefix}.{name}" if prefix else str(name))
    ]


def show(args: argparse.Namespace, output: Output) -> int:
    """Print every value."""
    config = read_config(process_home())
    values = masked({name: config.get(name) for name in config.data})
    output.record({"kind": "config", "path": str(config.path), "values": values})
    for name, value in _flat(values) if values else ():
        output.line(f"{clean(name, 200)} = {_shown(value)}")
    if not values:
        output.line(f"Nothing is set in {config.path}; every key has its default.")
    return 0


def get(args: argparse.Namespace, output: Output) -> int:
    """Print one value; exit 1 when it is not set."""
    value = read_config(process_home()).get(args.key)
    if value is None:
        raise ConfigError(f"{clean(args.key, 80)} is not set.", advice="See: nedura config show")
    output.record({"kind": "config_value", "key": args.key, "value": value})
    output.line(_shown(value))
    return 0


def set(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Change one value."""
    value = parse_value(process_home(), args.key, args.value)
    edit_config(process_home(), lambda content: set_value(content, args.key, value))
    output.record(
        {"kind": "config_set", "key": args.key, "value": masked(value, args.key.rsplit(".", 1)[-1])}
    )
    output.line(f"{clean(args.key, 80)} = {_shown(masked(value, args.key.rsplit('.', 1)[-1]))}")
    if find_key(args.key) is None:
        output.remark(f"note: nedura itself reads no key {clean(args.key, 80)!r}; it is kept.")
    return 0


def path(args: argparse.Namespace, output: Output) -> int:
    """Print where the file is."""
    where = config_path(process_home())
    output.record({"kind": "config_path", "path": str(where)})
    output.line(str(where))
    return 0


def edit(args: argparse.Namespace, output: Output) -> int:
    """Edit a copy, and put it in place only when it can be read."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if not sys.stdin.isatty():
        raise RefusedError("There is no terminal to edit in.", advice="Use: nedura config set KEY VALUE")
    where = config_path(process_home())
    before = _content(where)
    with tempfile.TemporaryDirectory(prefix="nedura-config-") as folder:
        copy = Path(folder) / "config.yaml"
        copy.write_bytes(before)
        while True:
            _run_editor(editor, copy)
            after = copy.read_bytes()
            try:
                changed = _accept(after, before)
                break
            except ConfigError as error:
                output.remark(f"nedura: {error.message}")
                if (
                    _content(where) != before or not _again()
                ):  # a changed file refuses the same edit every time
                    raise _unsaved(where, after) from error
    output.line("Saved." if changed else "Nothing was changed.")
    return 0


def _again() -> bool:
    """Whether the person wants to go on; the end of the input and Ctrl-C say no."""
    try:
        return input("Edit again? [Y/n] ").strip().lower() not in ("n", "no")
    except (EOFError, KeyboardInterrupt):
        return False


def _unsaved(where: Path, after: bytes) -> ConfigError:
    """The error after an edit that cannot be taken; the work itself is kept beside the config."""
    kept = where.with_name("config.yaml.edited")
    write_bytes(kept, after)
    return ConfigError("The config was not changed.", advice=f"Your edit is kept in {kept}")


def _content(where: Path) -> bytes:
    try:
        return read_bytes(where)
    except RecordMissing:
        return b""


def _run_editor(editor: str, copy: Path) -> None:
    try:
        done = subprocess.run([*shlex.split(editor), str(copy)], check=False)
    except (OSError, ValueError) as error:
        raise NeduraError(
            f"The editor {clean(editor, 80)!r} cannot be started.", advice="Set EDITOR."
        ) from error
    if done.returncode:
        raise NeduraError(f"The editor ended with {done.returncode}; nothing was changed.")


def _accept(after: bytes, before: bytes) -> bool:
    if after == before:
        return False
    replace_config(process_home(), after, before)
    return True
