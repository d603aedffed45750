"""What is left to say and do when the code that runs is damaged, told by code that is not part of it.

`damage` and `rescue` travel as text: `damage` beside the pin of every generation, both in the launcher. They need the standard library
alone, and nothing of a generation but its manifest.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from json import dumps
from typing import Final

__all__ = [
    "HOOKS",
    "PIN_LINE",
    "damage",
    "launcher_code",
    "module_code",
    "pin_failed",
    "rescue",
    "say",
    "tell",
]

SCRIPT: Final = "nedura/update/generation/mend.py"
"""Run from the rescued copy: builds the next generation from it."""

HOOKS: Final = """

STARTED = False  # set by a command that came to run


def damage(generation):
    import _damage

    return _damage.damage(generation)


def _hook(kind, error, trace):
    global STARTED
    STARTED = True
    if kind is KeyboardInterrupt and sys.modules["__main__"].__spec__ is None:
        os._exit(130)  # before the program began; a traceback would tell nobody anything
    import _damage

    if not issubclass(kind, Exception) or not _damage.tell(GENERATION):
        sys.__excepthook__(kind, error, trace)


def _entry_gone(paths):  # Python would say that there is no such module
    import _damage

    if _damage.tell(GENERATION, paths):
        os._exit(1)


def _ended():
    if STARTED:
        return
    import _damage

    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    # a cut-off entry point ends without having run anything; one that is whole did what it had to
    if _damage.tell(GENERATION, (main.removeprefix(os.path.join(GENERATION, "tree", "")),) if main else ()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


if sys.argv[:1] == ["-m"]:  # what Python has there until it has found the module; a "-m" further on is somebody's argument
    import atexit
    import runpy  # Python's own import of it would end a Ctrl-C with its own words

    sys.excepthook = _hook
    atexit.register(_ended)
    _name = "/" + sys.orig_argv[-len(sys.argv)].replace(".", "/")
    _ends = (".py", "/__main__.py")
    _paths = tuple(os.path.normpath(r + _name + end).lstrip("/") for r in ROOTS for end in _ends)
    if not any(os.path.isfile(GENERATION + "/tree/" + path) for path in _paths):
        _entry_gone(_paths)
WHOLE = True
"""
"""The end of every generation's pin: compiled at each start, so it is short."""


PIN_LINE: Final = (
    'import sys; exec("try:\\n import _generation; _generation.WHOLE\\n'
    "except KeyboardInterrupt:\\n import os; os._exit(130)\\n"
    'except Exception as error:\\n import _damage; _damage.pin_failed(error)")\n'
)
"""The `.pth` file of every generation: `site` would print a failing pin's traceback and go on to a start that finds no code."""


def tell(generation: str, only: tuple[str, ...] = ()) -> bool:
    """One line instead of a traceback, or of nothing at all, when a start fails because files are not what was installed."""
    import os
    import sys

    found = damage(generation, only)
    if found == ["manifest.json"] and os.path.realpath(generation + "/../../current") != generation:
        return False  # one that is still being made has none yet: what failed is a step of its building
    if not found:
        return False
    say(generation, ascii(found[0])[1:-1], len(found) - 1)
    sys.stderr.flush()
    return True


def pin_failed(error: Exception) -> None:
    """End a start whose pin is damaged with one line; another use of the interpreter, as a repair's, goes on.

    Raises:
        Exception: the given one, for `site` to show.
    """
    import os
    import sys

    if sys.argv[:1] != ["-m"]:
        raise error
    say(os.path.normpath(os.path.join(os.path.realpath(__file__), *[os.pardir] * 5)), "its pin")
    sys.stderr.flush()
    os._exit(1)


def say(generation: str, what: str, others: int = 0) -> None:
    """The line about a damaged install; `others` counts what is damaged beside the named part."""
    import json
    import sys

    try:
        with open(generation + "/../../install.json", "rb") as file:
            command = str(json.load(file)["command"])
    except (OSError, ValueError, KeyError, TypeError):
        command = "nedura"
    state = f"and {others} more are not as they were" if others else "is not as it was"
    sys.stderr.write(
        f"{command}: this install is damaged: {what} {state} installed. "
        f"Repair it: {command} pm sync. Or go back: {command} update --rollback\n"
    )


def damage(generation: str, only: tuple[str, ...] = ()) -> list[str]:
    """Parts of a generation that are not what its manifest says, and bytecode that cannot be loaded; empty when it is whole.

    Its packages are judged by the hash that was taken when they were installed; the venv is not looked at (see `_starts`).

    Args:
        generation: its folder.
        only: look at these paths alone; empty for all.
    """
    import hashlib
    import importlib.util
    import json
    import marshal
    import os
    import sys

    try:
        with open(generation + "/manifest.json", "rb") as file:
            manifest = json.load(file)
        files = {path: (mode, oid) for path, (mode, oid) in manifest["files"].items()}
        files.update({path: (files[path][0], oid) for path, oid in manifest.get("written", {}).items()})
        files.update({path: ("100644", oid) for path, oid in manifest.get("built", {}).items()})
        identity, env = manifest["identity"], str(manifest.get("env") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ["manifest.json"]
    found = [] if only else _beside_the_tree(generation, identity, env)
    for path, (mode, oid) in sorted(files.items()):
        if only and path not in only:
            continue
        place = generation + "/tree/" + path
        try:
            if mode == "120000":
                data = os.fsencode(os.readlink(place))
            else:
                with open(place, "rb") as file:
                    data = file.read()
        except OSError:
            found.append(path)
            continue
        made = hashlib.sha1(usedforsecurity=False) if len(oid) == 40 else hashlib.sha256()
        made.update(b"blob %d\0" % len(data))
        made.update(data)
        if made.hexdigest() != oid:
            found.append(path)
        folder, _, name = path.rpartition("/")
        cache = f"{folder}/__pycache__/{name.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc".lstrip(
            "/"
        )
        if not name.endswith(".py") or not os.path.isfile(f"{generation}/tree/{cache}"):
            continue
        try:
            with open(f"{generation}/tree/{cache}", "rb") as file:
                data = file.read()
            if (
                len(data) > 16 and data[:4] == importlib.util.MAGIC_NUMBER
            ):  # any other is passed over by an import
                marshal.loads(data[16:])
        except (OSError, EOFError, ValueError, TypeError):
            found.append(cache)
    return found


def _beside_the_tree(generation: str, identity: dict[str, object], env: str) -> list[str]:
    """What a generation states about itself, and the packages that it uses."""
    import hashlib
    import json
    import os

    found = []
    try:
        with open(generation + "/identity.json", "rb") as file:
            stated = json.load(file)
        if any(stated[key] != value for key, value in identity.items()):
            found.append("identity.json")
    except (OSError, ValueError, KeyError, TypeError):
        found.append("identity.json")
    if not env:
        return found
    folder = os.path.normpath(f"{generation}/../../envs/{env}")
    digest = hashlib.sha256()
    try:
        with open(folder + "/complete", "rb") as file:
            built = json.load(file)
        top = "{}/lib/python{}.{}/site-packages".format(folder, *built["python"]["release"][:2])
        for path, names, files in os.walk(top):
            names[:] = sorted(name for name in names if name != "__pycache__")
            for name in sorted(files):
                place = os.path.join(path, name)
                digest.update(os.path.relpath(place, top).encode("utf-8", "surrogateescape") + b"\0")
                if not os.path.islink(place):
                    with open(place, "rb") as file:
                        digest.update(hashlib.sha256(file.read()).digest())
        whole = digest.hexdigest() == built["content"]
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    return found if whole else [*found, "envs/" + env]


def _starts(generation: str) -> bool:
    """Whether the interpreter of a generation comes up pinned to it, asked by starting it."""
    import subprocess

    try:
        with open(generation + "/venv/pyvenv.cfg", encoding="utf-8") as file:
            home, site, *_ = [*file.read().splitlines(), "", ""]
        if not home.startswith("home = /") or site != "include-system-site-packages = false":
            return False
        code = "import _generation as g; g.LEASE; hasattr(g, 'damage') and __import__('_damage').tell; print('ok')"
        argv = [generation + "/venv/bin/python", "-I", "-B", "-c", code]
        done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    # `site` only complains about a pin that failed
    return done.returncode == 0 and done.stdout == b"ok\n" and b"_generation.pth" not in done.stderr


def rescue(generation: str, command: str, script: str, roots: list[str]) -> int:
    """Make the next generation from the same version when this one is damaged: whole files from it, the others from our repository.

    Returns:
        0: current is whole (again); 3: it is not, and `previous` is; 1: neither is.
    """
    import os
    import shutil
    import subprocess
    import sys

    found = damage(generation)
    if not found and _starts(generation):
        return 0
    install = os.path.dirname(os.path.dirname(generation))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    first = ascii(found[0])[1:-1] if found else "its pin"
    what = f"{command}: generation {os.path.basename(generation)} is damaged ({first}{more})"
    copy = f"{install}/.tmp.rescue.{os.getpid()}"
    why = "its manifest is gone"
    try:
        if found != ["manifest.json"]:
            _copy(generation, copy, frozenset(found))
            argv = [
                os.path.realpath(sys.executable),
                "-I",
                "-S",
                "-B",
                copy + "/" + script,
                generation,
                *roots,
            ]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                sys.stderr.write(f"{what}. {done.stdout.strip()}\n")
                return 0
            why = (done.stderr.strip().splitlines() or ["it could not be built"])[-1]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        why = str(error)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    why = why.rstrip(".")
    former = os.path.realpath(install + "/previous")
    whole = os.path.isdir(former + "/tree") and former != generation and not damage(former)
    if whole and _starts(former):
        name = os.path.basename(former)
        sys.stderr.write(f"{what} and was not repaired: {why}. This command runs from generation {name}.\n")
        return 3
    again = "./run install, in " + ascii(os.path.realpath(install + "/source"))[1:-1]
    sys.stderr.write(f"{what} and was not repaired: {why}. Install it again: {again}\n")
    return 1


def _copy(generation: str, copy: str, broken: frozenset[str]) -> None:
    """A whole copy of a damaged tree, without what nobody vouches for."""
    import json
    import os
    import shutil
    import subprocess

    with open(generation + "/manifest.json", "rb") as file:
        manifest = json.load(file)
    git = shutil.which("git") or "/usr/bin/git"
    repository = os.path.dirname(os.path.dirname(generation)) + "/repo.git"
    for path, (mode, oid) in manifest["files"].items():
        source, place = generation + "/tree/" + path, copy + "/" + path
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        if path not in broken and mode == "120000":
            os.symlink(os.readlink(source), place)
            continue
        if path not in broken:
            shutil.copyfile(source, place)
        else:
            argv = [git, "--git-dir=" + repository, "cat-file", "blob", oid]
            done = subprocess.run(
                argv, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
            )
            if done.returncode:
                raise ValueError("our repository has no whole copy of " + ascii(path)[1:-1])
            if mode == "120000":
                os.symlink(os.fsdecode(done.stdout), place)
                continue
            with open(place, "wb") as file:
                file.write(done.stdout)
        os.chmod(place, 0o555 if mode == "100755" else 0o444)
    for path in manifest.get("built", {}):
        if path in broken:
            raise ValueError(ascii(path)[1:-1] + " was built here")
        os.makedirs(os.path.dirname(copy + "/" + path), 0o700, exist_ok=True)
        shutil.copyfile(generation + "/tree/" + path, copy + "/" + path)


def module_code() -> str:
    """`_damage.py`, which lies beside every generation's pin and is only read when a start failed."""
    parts = (damage, _beside_the_tree, tell, pin_failed, say)
    return "\n\n".join(inspect.getsource(function) for function in parts)


def launcher_code(roots: Sequence[str]) -> str:
    """A program for `python -c`: `GENERATION COMMAND`, exits as `rescue` returns.

    Args:
        roots: folders of the tree for `sys.path`.
    """
    parts = [inspect.getsource(function) for function in (damage, _beside_the_tree, _starts, _copy, rescue)]
    call = f"rescue(sys.argv[1], sys.argv[2], {dumps(SCRIPT)}, {dumps(list(roots))})"
    return f"import sys\n\n\n{chr(10).join(parts)}\n\nsys.exit({call})\n"
