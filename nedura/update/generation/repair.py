"""Gives a generation whose Python is gone another one, with the standard library alone. The launcher starts it by path.

`repair.py GENERATION [--again] [ROOT...]`: builds the next generation from the same files for the interpreter that runs this, and makes
it current only when it is whole. What was there stays until then. After three failures with one interpreter a start tries no more, only
`--again`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

TREE: Final = Path(os.path.realpath(__file__)).parents[3]

if __name__ == "__main__":
    sys.path.insert(0, str(TREE))

from nedura.errors import NeduraError, UpdateError  # noqa: E402
from nedura.locks import FileLock  # noqa: E402
from nedura.programs import child_environment  # noqa: E402
from nedura.records import fsync_folder, make_folder, read_json, write_bytes, write_json  # noqa: E402
from nedura.update.bounded import run_bounded  # noqa: E402
from nedura.update.generation.environment import (  # noqa: E402
    discard,
    ensure_environment,
    environment_hash,
    is_complete,
    sync_filesystem,
    verify_environment,
)
from nedura.update.generation.interpreter import Interpreter, admits, base_python, inspect  # noqa: E402
from nedura.update.generation.thin import flip, next_name, protect, write_venv  # noqa: E402
from nedura.update.source.tries import Tries  # noqa: E402

__all__ = ["LOST", "main", "repair"]

LOST: Final = "The Python of this install is gone"
"""How its lines begin: the launcher tells them from another interpreter's complaints."""
MANIFEST_LIMIT: Final = 64 * 1024 * 1024


def _unchecked(made: Path) -> None:
    """Another interpreter for the files that are there."""


def repair(
    generation: Path,
    python: Interpreter,
    *,
    tree: Path | None = None,
    roots: Sequence[str] = (),
    check: Callable[[Path], None] = _unchecked,
) -> Path:
    """Build and publish a generation like this one for another interpreter.

    Args:
        generation: the generation that cannot start.
        python: the interpreter to use.
        tree: files to take instead of its own, which are damaged.
        roots: folders of the tree for `sys.path`; default what its pin says.
        check: may refuse what was built, before it becomes current.

    Raises:
        UpdateError: the files do not admit this interpreter, or its packages cannot be installed.
        StoreError: a record cannot be read or written.
    """
    manifest: dict[str, Any] = read_json(generation / "manifest.json", MANIFEST_LIMIT)
    tree = generation / "tree" if tree is None else tree
    _check_python(tree, python)
    install = generation.parents[1]
    record: dict[str, Any] = read_json(install / "install.json")
    lock = FileLock(install / "lock", "The install")
    lock.acquire(30.0)
    try:
        env = _environment(manifest, tree, install, python)
        target = install / "generations" / next_name(install / "generations")
        try:
            _build(tree, target, manifest, python, env, record, roots or _roots(generation))
            check(target)
        except BaseException:
            discard(target)
            raise
        flip(install, "current", target.name)
    finally:
        lock.release()
    return target


def _check_python(tree: Path, python: Interpreter) -> None:
    import tomllib

    try:
        requires = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    except (OSError, ValueError, KeyError, TypeError):
        requires = ">=3.11"
    if not admits(str(requires), python.release):
        raise UpdateError(f"Python {python.short} does not fit {requires}.", stop_class="python")


def _environment(manifest: dict[str, Any], tree: Path, install: Path, python: Interpreter) -> str:
    if not manifest.get("env"):
        return ""
    lock, folder = tree / "requirements.lock", install / "envs" / str(manifest["env"])
    request = {"python": python.path, "lock": str(lock), "envs": str(folder.parent)}
    aside = folder.with_name(f".trash-{folder.name}")
    same = folder.name == environment_hash(lock.read_bytes(), (), python)
    damaged = same and is_complete(folder) and not verify_environment(folder)
    if damaged:  # it is built again under its own name; when that fails, members keep what works of it
        discard(aside)
        os.rename(folder, aside)
    try:
        name = str(ensure_environment(request)["hash"])
    except BaseException:
        if damaged:
            os.rename(aside, folder)
        raise
    if damaged:
        discard(aside)
    return name


def _build(
    tree: Path,
    target: Path,
    manifest: dict[str, Any],
    python: Interpreter,
    env: str,
    record: dict[str, Any],
    roots: Sequence[str],
) -> None:
    for path, names, files in os.walk(tree):
        names[:] = [name for name in names if name != "__pycache__"]
        folder = make_folder(target / "tree" / os.path.relpath(path, tree))
        for name in files:
            os.link(os.path.join(path, name), folder / name, follow_symlinks=False)
    _compile(target / "tree", python)
    write_venv(target, python, roots, env, [str(path) for path in record.get("packages", ())])
    identity = {**manifest["identity"], "generation": target.name}
    levels = {key: manifest[key] for key in ("state_min", "state_max") if key in manifest}
    write_json(target / "identity.json", {**identity, **levels}, 0o444)
    protect(target / "tree")
    protect(target / "venv")
    sync_filesystem(target)
    asked = json.loads(json.dumps(python._asdict()))
    # made from the same with the same: the next update has nothing to build anew
    inputs = manifest.get("inputs", "") if (manifest["python"], manifest["env"]) == (asked, env) else ""
    changed = {"identity": identity, "env": env, "python": asked, "inputs": inputs}
    write_bytes(target / "manifest.json", json.dumps({**manifest, **changed}).encode(), 0o444)
    os.chmod(target, 0o755)
    fsync_folder(target.parent)


def _compile(tree: Path, python: Interpreter) -> None:
    """Bytecode for the new interpreter; what does not compile stays source."""
    names = [str(path.relative_to(tree)) for path in tree.rglob("*.py")]
    run_bounded(
        [python.path, "-I", "-S", "-B", str(Path(__file__).with_name("compile_worker.py"))],
        env=child_environment(),
        cwd=tree,
        stdin="\0".join(names).encode("utf-8", "surrogateescape"),
        timeout=600,
        sweep=True,
    )


def _roots(generation: Path) -> list[str]:
    """Roots of the tree as the old pin has them: the only place that knows them without the product.

    Raises:
        UpdateError: the pin is gone; a generation with guessed roots would find no code.
    """
    for pin in sorted((generation / "venv" / "lib").glob("python*/site-packages/_generation.py")):
        for line in pin.read_text("utf-8").splitlines():
            if line.startswith("ROOTS = "):
                return [str(root) for root in json.loads(line.removeprefix("ROOTS = ").replace("'", '"'))]
    raise UpdateError("its pin is gone, too; start it through its launcher", stop_class="repair")


def _tried(generation: Path, python: Interpreter, roots: Sequence[str], *, again: bool) -> Path:
    """`repair`, counted: three tries of this generation with this interpreter."""
    _check_python(generation / "tree", python)  # one that never fits is no try
    damage = f"{generation.name} {python.path} {python.short}".encode()
    place = generation.parents[1] / f".python-repair-tries-{hashlib.sha256(damage).hexdigest()[:8]}"
    script = generation / "tree" / "nedura/update/generation/repair.py"
    by_hand = f"run: {python.path} {script} {generation} --again {' '.join(map(shlex.quote, roots))}".rstrip()
    tries = Tries(str(place), damage, by_hand)
    if not again and tries.over():
        raise UpdateError(tries.over(), stop_class="repair")
    tries.begin()
    try:
        target = repair(generation, python, roots=roots)
    except (NeduraError, OSError, ValueError, KeyError) as error:
        tries.failed(error.message if isinstance(error, NeduraError) else str(error))
        raise
    tries.end()
    return target


def main(argv: list[str]) -> int:
    """Repair, and say so in one line."""
    generation = Path(os.path.realpath(argv[0]))
    try:
        roots = [word for word in argv[1:] if word != "--again"]
        target = _tried(generation, inspect(base_python()), roots, again="--again" in argv)
    except (NeduraError, OSError, ValueError, KeyError) as error:
        told = error.message if isinstance(error, NeduraError) else str(error)
        sys.stderr.write(f"{LOST}, and it could not be repaired: {told}\n")
        return 1
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(f"{LOST}; generation {target.name} uses Python {version}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
