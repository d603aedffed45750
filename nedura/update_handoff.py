"""Frozen compat surface: names that older releases import from the NEW tree after the checkout moved under them.

Public names stay importable and keep their behaviour for ever (tests/compat/old_updater_surface.json). An old process that calls in
here must not run new code: it is stopped and a fresh interpreter finishes its update. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nedura import _old_updater

__all__ = [
    "POST_SWAP_ENV",
    "continue_update_in_fresh_interpreter",
    "is_post_swap_child",
    "post_swap_child_env",
    "post_swap_command",
    "post_swap_python",
    "read_handoff",
    "write_handoff",
]

POST_SWAP_ENV: Final = "NEDURA_UPDATE_POST_SWAP"
"""Set to 1 in a process that continues an update after the swap."""


def is_post_swap_child(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process continues an update after the swap."""
    return (os.environ if environ is None else environ).get(POST_SWAP_ENV, "") == "1"


def write_handoff(payload: Mapping[str, Any], home: Path | str | None = None) -> Path:
    """Write a payload for a fresh interpreter: `<home>/logs/update_receipts/post_swap_<pid>.json`, 0600.

    Args:
        payload: JSON data.
        home: root home; default the current one.

    Raises:
        StoreError: it cannot be written.
    """
    from nedura.homes import process_home, root_home
    from nedura.records import make_folder, write_json

    root = root_home(process_home()) if home is None else Path(home)
    path = make_folder(root / "logs" / "update_receipts") / f"post_swap_{os.getpid()}.json"
    write_json(path, dict(payload))
    return path


def read_handoff(path: Path | str) -> dict[str, Any]:
    """Read a payload back.

    Raises:
        StoreError: it cannot be read or is no object.
    """
    from nedura.errors import RecordCorrupt
    from nedura.records import read_json

    value = read_json(Path(path))
    if not isinstance(value, dict):
        raise RecordCorrupt(f"{Path(path).name} is no hand-off.")
    return value


def post_swap_python() -> str:
    """The interpreter that continues: this one's base, without its site."""
    return getattr(sys, "_base_executable", "") or sys.executable


def post_swap_command(handoff: Path | str, argv_tail: Sequence[str] | None = None) -> list[str]:
    """The command line that continues from a payload.

    Args:
        handoff: the payload's file.
        argv_tail: further words of the old command line.
    """
    base = [post_swap_python(), "-I", "-B", "-m", "nedura_cli.main", "update", "--post-swap", str(handoff)]
    return [*base, *(argv_tail or ())]


def post_swap_child_env(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of that process: nothing that steers Python, and the mark that it continues."""
    source = os.environ if environ is None else environ
    kept = {
        key: value for key, value in source.items() if not key.startswith("PYTHON") and key != "VIRTUAL_ENV"
    }
    return {**kept, POST_SWAP_ENV: "1"}


def continue_update_in_fresh_interpreter(
    payload: Mapping[str, Any], *, argv_tail: Sequence[str] | None = None
) -> int | None:
    """Finish the caller's update in a fresh interpreter and end the calling process with its status.

    Args:
        payload: what the old release knows, in its own keys (old names are mapped).
        argv_tail: words of its command line, for flags it does not repeat in the payload.

    Returns:
        None in a process that is such a continuation already; otherwise it does not return.

    Raises:
        SystemExit: with the finished update's status.
    """
    if is_post_swap_child():
        return None
    mapped = {**payload}
    if argv_tail and {"--yes", "-y"} & set(argv_tail):
        mapped["assume_yes"] = True
    _old_updater.stop_for_relaunch(payload=mapped)
