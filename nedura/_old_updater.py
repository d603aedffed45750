"""Stops an old update process that has begun to import this newer tree, and finishes its work in a fresh interpreter.

Standard library only. An older release that imports one of the frozen names (tests/compat/old_updater_surface.json) after the tree
moved under it must find them, and must not go on: what it holds in its frames is collected as data, `update_takeover` finishes the
update from this tree, and the old process exits with its status (the spec's Frozen Compat Surface).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

TREE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
HOME = "NEDURA_HOME"
HANDOFF_PID = "NEDURA_UPDATE_HANDOFF_PID"
TAKEOVER = os.path.join(TREE, "nedura", "update_takeover.py")
MAX_FRAMES = 200
_DROPPED = ("PYTHON", "UV_")

_status: list[int] = []


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _held(name: str) -> Iterator[Any]:
    """Values that old frames hold under a name, as a local or as an attribute of their `self`."""
    for frame in _frames():
        for value in (frame.f_locals.get(name), getattr(frame.f_locals.get("self"), name, None)):
            if value is not None:
                yield value


def old_run() -> Any:
    """The run of an update that is under way in the calling frames; None outside any."""
    for run in (*_held("run"), *_held("_run")):
        if getattr(run, "run_id", None) and getattr(run, "root_home", None):
            return run
    return None


def old_receipt() -> dict[str, Any] | None:
    """The open receipt that the calling frames hold; None when there is none."""
    for journal in (*_held("journal"), *_held("_journal")):
        receipt = getattr(journal, "receipt", None)
        if isinstance(receipt, dict) and receipt.get("update_id"):
            return receipt
    return None


def collect(payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything a takeover needs, as data: what the caller passed, then what old frames hold, then the environment."""
    run, given = old_run(), dict(payload or {})
    options = getattr(run, "options", None)
    root_home = str(getattr(run, "root_home", "") or given.get("root_home") or "")
    home = str(getattr(run, "home", "") or given.get("home") or os.environ.get(HOME, ""))
    return {
        "root": TREE,
        "home": home or os.path.join(os.path.expanduser("~"), ".nedura"),
        "root_home": root_home,
        "argv": list(sys.argv),
        "python": sys.executable,
        "update_id": str(getattr(run, "run_id", "") or given.get("update_id") or ""),
        "receipt": old_receipt() or given.get("receipt"),
        "snapshots": dict(getattr(run, "snapshots", None) or given.get("snapshots") or {}),
        "desktop": bool(given.get("desktop", given.get("had_desktop_app_before_update", False))),
        "windows_resume": given.get("windows_resume", given.get("windows_gateway_resume")),
        "assume_yes": bool(getattr(options, "yes", False) or "--yes" in sys.argv or "-y" in sys.argv),
        "gateway_mode": bool(getattr(options, "gateway_mode", False) or "--gateway" in sys.argv),
        "no_gateway_restart": bool(
            getattr(options, "no_gateway_restart", False) or "--no-gateway-restart" in sys.argv
        ),
        "pre_update_sha": str(getattr(getattr(run, "before", None), "code_sha", "") or ""),
        "lock_fds": [fd for fd in getattr(run, "lock_fds", ()) if isinstance(fd, int)],
    }


def stop_for_relaunch(incomplete: bool = False, payload: Mapping[str, Any] | None = None) -> NoReturn:
    """Finish the update in a fresh interpreter of this tree, then end this old process with its status.

    Args:
        incomplete: what the old process holds is not enough: start nothing, ask for another run, exit 1.
        payload: what the old caller passed, in its own keys.

    Raises:
        SystemExit: always; a second call repeats the first one's status.
    """
    if incomplete:
        sys.stderr.write("nedura: this update has to be finished by new code. Run: nedura update\n")
        raise SystemExit(1)
    if not _status:
        status, _ = _run_child(collect(payload))
        _status.append(status)
    raise SystemExit(_status[0])


def _run_child(request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run `update_takeover` of the request's tree and wait for it.

    Args:
        request: needs `root`, `home`, `argv`; the rest as `collect` makes it.

    Returns:
        Its exit status (128+N for signal N) and its result: `resume_handled`, `receipt_handled`, `serves_handled`.
    """
    folder = tempfile.mkdtemp(prefix=f"nedura-takeover-{os.getpid()}-")
    try:
        request_path, result_path = os.path.join(folder, "request.json"), os.path.join(folder, "result.json")
        handle = os.open(request_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(json.dumps(dict(request)).encode("utf-8"))
        environ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(_DROPPED) and key != "VIRTUAL_ENV"
        }
        environ[HOME] = str(request.get("root_home") or request["home"])
        environ.setdefault(HANDOFF_PID, str(os.getpid()))
        takeover = os.path.join(str(request["root"]), "nedura", "update_takeover.py")
        python = getattr(sys, "_base_executable", "") or sys.executable
        done = subprocess.run(
            [python, "-I", "-S", "-B", "-X", "utf8", takeover, request_path, result_path],
            env=environ,
            stdin=subprocess.DEVNULL,
            pass_fds=[fd for fd in request.get("lock_fds") or () if _is_open(fd)],
            check=False,
        )
        status = 128 - done.returncode if done.returncode < 0 else done.returncode
        return status, _read(result_path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            value = json.loads(stream.read(1 << 20))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
