"""Frozen entry: finishes, from this tree and in a fresh interpreter, an update that an old process began.

Started by path with `-I -S -B`: standard library only until the completion's own bootstrap has chosen the Python. It adopts the old
receipt (or opens one), keeps the install locked through the inherited descriptor, and runs the same completion as every other update.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from typing import Any

TREE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
EXIT_CONCURRENT = 2
DEADLINE = 2 * 3600.0


def main(argv: list[str]) -> int:
    """Finish the update that the request describes; returns the completion's status, 2 when another update runs."""
    if len(argv) != 2:
        sys.stderr.write("usage: update_takeover.py REQUEST RESULT\n")
        return 64
    with open(argv[0], encoding="utf-8") as stream:
        request = json.load(stream)
    if os.path.realpath(str(request.get("root", ""))) != TREE:
        sys.stderr.write(f"update_takeover: this tree is {TREE}, the request is for another\n")
        return 64
    root_home = root_of(request)
    if concurrent(root_home):
        sys.stderr.write("nedura: another update is running. Run it again when that has ended.\n")
        return EXIT_CONCURRENT
    status, result = finish(request, root_home)
    answer = {"resume_handled": True, "serves_handled": True, "receipt_handled": result is not None}
    write_json(argv[1], {**answer, "exit_code": status})
    return status


def root_of(request: dict[str, Any]) -> str:
    """The root home: as the old process said, else by the rule of profile homes."""
    said = str(request.get("root_home") or "")
    home = os.path.abspath(str(request["home"]))
    if said:
        return said
    above = os.path.dirname(home)
    return os.path.dirname(above) if os.path.basename(above) == "profiles" else home


def concurrent(root_home: str) -> bool:
    """Whether the update marker names a live process that is neither the one we act for nor above us."""
    try:
        with open(
            os.path.join(root_home, ".nedura-update-in-progress"), encoding="ascii", errors="replace"
        ) as stream:
            pid = stream.readline().strip()
    except OSError:
        return False
    if (
        not pid.isdigit()
        or pid == os.environ.get("NEDURA_UPDATE_HANDOFF_PID")
        or int(pid) in (os.getpid(), os.getppid())
    ):
        return False
    return os.path.exists(f"/proc/{pid}") if os.path.isdir("/proc/self") else listed(pid)


def listed(pid: str) -> bool:
    """Whether `ps` knows a process (platforms without /proc)."""
    return subprocess.run(["/bin/ps", "-p", pid], stdout=subprocess.DEVNULL, check=False).returncode == 0


def finish(request: dict[str, Any], root_home: str) -> tuple[int, dict[str, Any] | None]:
    """Run the completion's bootstrap on a request of its own form; the result is None when it left none."""
    folder = tempfile.mkdtemp(prefix=f"nedura-completion-{os.getpid()}-")
    request_path, result_path = os.path.join(folder, "request.json"), os.path.join(folder, "result.json")
    write_json(request_path, completion_request(request, root_home))
    bootstrap = os.path.join(TREE, "nedura", "update", "bootstrap.py")
    command = [
        sys.executable,
        "-I",
        "-S",
        "-u",
        "-X",
        "utf8",
        "-X",
        f"pycache_prefix={folder}/bytecode",
        bootstrap,
    ]
    locks = [fd for fd in request.get("lock_fds") or () if is_open(fd)]
    done = subprocess.run(
        [*command, "complete", request_path, result_path], cwd=TREE, pass_fds=locks, check=False
    )
    status = 128 - done.returncode if done.returncode < 0 else done.returncode
    try:
        with open(result_path, encoding="utf-8") as stream:
            result = json.load(stream)
    except (OSError, ValueError):
        result = None
    if result is None and status == 0:
        status = 1
    remove(folder)
    return status, result


def completion_request(request: dict[str, Any], root_home: str) -> dict[str, Any]:
    """The completion's request, schema 1. What runs now is left for the new code to state: it is this tree's HEAD."""
    install_id = hashlib.sha256(TREE.lower().encode()).hexdigest()[:12]
    receipt = open_receipt(request, install_id)
    state = os.path.join(root_home, "installs", install_id)
    return {
        "schema": 1,
        "update_id": receipt["update_id"],
        "nonce": secrets.token_hex(16),
        "source": TREE,
        "root_home": root_home,
        "home": os.path.abspath(str(request["home"])),
        "install_id": install_id,
        "layout": "checkout",
        "python": str(request.get("python") or ""),
        "options": {
            "yes": bool(request.get("assume_yes")),
            "gateway_mode": bool(request.get("gateway_mode")),
            "no_gateway_restart": bool(request.get("no_gateway_restart")),
        },
        "changed": True,
        "first_member": False,
        "snapshots": dict(request.get("snapshots") or {}),
        "receipt": receipt,
        "deadline": time.time() + DEADLINE,
        "windows_resume": request.get("windows_resume"),
        "notes": {"takeover": True},
        "tail": os.path.join(state, "source-completion-pending"),
        "roots": ["", "renderers/cli", "renderers/gateway"],
    }


def open_receipt(request: dict[str, Any], install_id: str) -> dict[str, Any]:
    """The old process's open receipt, or a new one."""
    if TREE not in sys.path:
        sys.path.insert(0, TREE)
    from nedura.update.ledger.receipt import opened

    old = request.get("receipt")
    if isinstance(old, dict) and old.get("update_id") and not old.get("finished_at"):
        return {**opened(), **old}
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        **opened(),
        "update_id": str(request.get("update_id") or secrets.token_hex(16)),
        "started_at": started,
        "argv": [str(word)[:300] for word in request.get("argv") or ()],
        "pid": os.getpid(),
        "install_id": install_id,
        "layout": "checkout",
    }


def is_open(handle: Any) -> bool:
    """Whether a descriptor was inherited."""
    try:
        os.fstat(int(handle))
    except (OSError, ValueError, TypeError):
        return False
    return True


def remove(folder: str) -> None:
    """Remove a folder of ours."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def write_json(path: str, value: dict[str, Any]) -> None:
    """A new or replaced file in a private folder."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(json.dumps(value).encode("utf-8"))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
