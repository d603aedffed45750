"""Which Python runs a generation: facts of an interpreter, and the choice by requires-python (decision 43).

Standard library only: the completion bootstrap uses it before any dependency exists.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from nedura.errors import UpdateError
from nedura.programs import child_environment, find_program

__all__ = ["Interpreter", "admits", "base_python", "candidates", "choose", "inspect"]

_ASK: Final = (
    "import json,os,sys,sysconfig;"
    "print(json.dumps([os.path.realpath(sys.executable),sys.version,sysconfig.get_platform(),"
    "sys.implementation.cache_tag,list(sys.version_info[:3])]))"
)
_CLAUSE: Final = re.compile(r"^\s*(~=|===|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?\s*\Z")
NAMES: Final = tuple(f"python3.{minor}" for minor in range(20, 10, -1))


class Interpreter(NamedTuple):
    """One Python.

    Attributes:
        path: real path of its base executable.
        version: `sys.version`, whole.
        platform: platform tag.
        tag: cache tag, in the names of bytecode files.
        release: (major, minor, micro).
    """

    path: str
    version: str
    platform: str
    tag: str
    release: tuple[int, int, int]

    @property
    def library(self) -> str:
        """Folder of third-party packages inside an environment, relative to it."""
        return f"lib/python{self.release[0]}.{self.release[1]}/site-packages"

    @property
    def short(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.release))


def base_python() -> str:
    """The interpreter that the running one was made from: a generation never depends on somebody's virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _own() -> Interpreter:
    import sysconfig

    major, minor, micro = sys.version_info[:3]
    tag = sys.implementation.cache_tag or ""
    return Interpreter(base_python(), sys.version, sysconfig.get_platform(), tag, (major, minor, micro))


def inspect(python: str, environ: Mapping[str, str] | None = None) -> Interpreter:
    """Facts of an interpreter; asks it, unless it is the one that runs now.

    Raises:
        UpdateError: it does not start.
    """
    if os.path.realpath(python) == base_python():
        return _own()
    try:
        answer = subprocess.run(
            [python, "-I", "-S", "-c", _ASK],
            env=child_environment(environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=True,
        )
        path, version, platform, tag, release = json.loads(answer.stdout)
        return Interpreter(path, version, platform, tag, (release[0], release[1], release[2]))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UpdateError(
            f"{python} does not start.", stop_class="python", advice="Install Python 3.11 or newer."
        ) from error


def _pad(version: Iterable[int], length: int) -> tuple[int, ...]:
    parts = tuple(version)
    return (*parts, *([0] * (length - len(parts))))


def _clause_admits(operator: str, wanted: tuple[int, ...], star: bool, release: tuple[int, ...]) -> bool:
    size = max(len(wanted), len(release))
    have, want = _pad(release, size), _pad(wanted, size)
    prefix = release[: len(wanted)] == wanted
    match operator:
        case ">=":
            return have >= want
        case "<=":
            return have <= want
        case ">":
            return have > want
        case "<":
            return have < want
        case "==" | "===":
            return prefix if star else have == want
        case "!=":
            return not (prefix if star else have == want)
        case _:  # ~=
            return have >= want and release[: len(wanted) - 1] == wanted[:-1]


def admits(requires: str, release: tuple[int, ...]) -> bool:
    """Whether a requires-python (PEP 440 clauses over release numbers) admits a version.

    Raises:
        UpdateError: it is no such text.
    """
    for clause in requires.split(","):
        if not clause.strip():
            continue
        found = _CLAUSE.match(clause)
        if found is None:
            raise UpdateError(f"requires-python {requires!r} is not understood.", stop_class="python")
        wanted = tuple(map(int, found[2].split(".")))
        if not _clause_admits(found[1], wanted, found[3] is not None, release):
            return False
    return True


def candidates(environ: Mapping[str, str] | None = None) -> Iterable[str]:
    """Interpreters to try, the running one first, then the newest on the safe part of PATH."""
    yield base_python()
    for name in (*NAMES, "python3"):
        found = find_program(name, environ)
        if found is not None:
            yield found


def choose(
    requires: str,
    preferred: str = "",
    environ: Mapping[str, str] | None = None,
    *,
    tries: Iterable[str] | None = None,
) -> Interpreter:
    """The interpreter for a tree: the preferred one if it fits, else the first that does.

    Args:
        requires: the tree's requires-python, empty for any.
        preferred: what runs today.
        environ: where PATH comes from.
        tries: interpreters instead of the ones found.

    Raises:
        UpdateError: none fits; says what to install.
    """
    for python in (*([preferred] if preferred else []), *(candidates(environ) if tries is None else tries)):
        try:
            found = inspect(python, environ)
        except UpdateError:
            continue
        if admits(requires, found.release):
            return found
    raise UpdateError(
        f"The new version needs Python {requires}, and no such Python is installed.",
        stop_class="python",
        advice=f"Install a Python that fits {requires}, for example {_example(requires)}, and try again.",
    )


def _example(requires: str) -> str:
    for minor in range(11, 30):
        if admits(requires, (3, minor, 0)):
            return f"apt-get install python3.{minor} python3.{minor}-venv"
    return "a newer one"
