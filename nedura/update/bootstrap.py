"""First code of the new tree that runs: standard library only, started by path with `-I -S` (decisions 23, 43).

`bootstrap.py environment REQUEST RESULT` makes the candidate's environment at prepare (sealed).
`bootstrap.py complete REQUEST RESULT` finishes an update: the environment step where it is still owed (checkout), then the selected
Python on this same file with `prepared`, which runs `nedura.update.completion.second_half` of this tree.

It imports nothing of ours but `nedura.update.generation.environment`, which keeps to the standard library too.
"""

import json
import os
import sys
import time
from typing import Any

SCHEMA = 1
HERE = os.path.realpath(__file__)
TREE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
FLAGS = ("-I", "-B", "-u", "-X", "utf8")


def main(argv: list[str]) -> int:
    """Run one phase; the exit status is 0, 1 (it failed, the result says why) or 64 (it was called wrongly)."""
    if len(argv) != 3 or argv[0] not in ("environment", "complete", "prepared"):
        sys.stderr.write("usage: bootstrap.py environment|complete|prepared REQUEST RESULT\n")
        return 64
    phase, request_path, result_path = argv
    with open(request_path, encoding="utf-8") as stream:
        request = json.load(stream)
    if request.get("schema") != SCHEMA:
        sys.stderr.write(f"bootstrap: request schema {request.get('schema')!r} is not known here\n")
        return 64
    if phase == "environment":
        return environment(request, result_path)
    if os.path.realpath(str(request.get("source", ""))) != TREE:
        sys.stderr.write(f"bootstrap: this tree is {TREE}, the request is for another\n")
        return 64
    if phase == "complete":
        return complete(request, request_path, result_path)
    return prepared(request, request_path, result_path)


def load_environment() -> Any:
    """`ensure_environment` of this tree, under `-S`: it and what it imports keep to the standard library."""
    if TREE not in sys.path:
        sys.path.insert(0, TREE)
    from nedura.update.generation.environment import ensure_environment

    return ensure_environment


def environment(request: "dict[str, Any]", result_path: str) -> int:
    """Phase `environment`: answer with what `ensure_environment` says, or with why it failed."""
    try:
        answer = load_environment()(request)
        ok = bool(answer.get("ok", True))
    except Exception as error:  # border of a process: the parent must get a reason, not a traceback
        answer, ok = refusal(error), False
    write_json(result_path, {"schema": SCHEMA, **answer})
    return 0 if ok else 1


def refusal(error: Exception) -> "dict[str, Any]":
    """Why there is no environment, as data that outlives this process."""
    return {
        "ok": False,
        "reason": f"{type(error).__name__}: {error}"[:500],
        "stop_class": str(getattr(error, "stop_class", "")),
        "advice": str(getattr(error, "advice", "")),
    }


def complete(request: "dict[str, Any]", request_path: str, result_path: str) -> int:
    """Phase `complete`: the environment step where it is owed, then the selected Python takes this process over."""
    handles = keep_handles()
    rearm_tail(request)
    wanted = request.get("environment")
    if wanted is not None:
        try:
            answer = load_environment()(wanted)
        except Exception as error:  # border of a process: a failed sync is a follow-up, never the end (A6)
            answer = refusal(error)
        request["pm_receipt"] = answer
        request["environment"] = None
        if answer.get("python"):
            request["python"] = answer["python"]
        write_json(request_path, request)
    python = request.get("python") or sys.executable
    command = [python, *FLAGS, HERE, "prepared", request_path, result_path]
    hand_on(handles)
    os.execv(python, command)  # the event pipe and the install lock stay open across it


def prepared(request: "dict[str, Any]", request_path: str, result_path: str) -> int:
    """Phase `prepared`: the new application code of this very tree, under the selected Python."""
    keep_handles()
    for root in reversed(request.get("roots") or ("",)):
        place = os.path.normpath(os.path.join(TREE, root))
        while place in sys.path:
            sys.path.remove(place)
        sys.path.insert(0, place)
    import nedura

    if not os.path.realpath(nedura.__file__).startswith(TREE + os.sep):
        sys.stderr.write("bootstrap: the selected Python imports nedura from another place\n")
        return 64
    from nedura.update.completion import second_half as completion

    return completion.main(request_path, result_path)


def keep_handles() -> "list[int]":
    """Keep what the parent gave us, the install's lock and the event pipe, from every program that is started here.

    A daemon that a build step or an installer leaves behind would else keep the install locked for ever.
    """
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except (OSError, ValueError):  # no /proc: as many as a parent of ours ever passes
        numbers = list(range(256))
    found = []
    for number in numbers:
        try:
            if number > 2 and os.get_inheritable(number):
                os.set_inheritable(number, False)
                found.append(number)
        except OSError:  # the look's own descriptor is closed by now
            continue
    return found


def hand_on(handles: "list[int]") -> None:
    """Let the next phase, which takes this very process over, have them."""
    for number in handles:
        os.set_inheritable(number, True)


def rearm_tail(request: "dict[str, Any]") -> None:
    """The tail obligation once more, by new code, before anything else of it runs."""
    place = request.get("tail")
    if not place or os.path.exists(place):
        return
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    write_bytes(place, b"The update's completion is pending.\n")


def write_json(path: str, value: "dict[str, Any]") -> None:
    """Replace a file whole and durably."""
    write_bytes(path, json.dumps(value).encode("utf-8"))


def write_bytes(path: str, data: bytes) -> None:
    """Temp file in the same folder, fsync, rename, fsync of the folder."""
    folder = os.path.dirname(os.path.abspath(path))
    temp = os.path.join(folder, f".{os.path.basename(path)}.tmp.{os.getpid()}.{time.monotonic_ns()}")
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:  # a disk that is nearly full takes a part and says so only at the next try
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    except OSError:
        os.unlink(temp)
        raise
    finally:
        os.close(handle)
    os.replace(temp, path)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
