"""Third-party packages of a generation: one folder by the hash of everything it is made from, built once, then only read.

Standard library only: the completion bootstrap of new code runs it before any dependency exists (decision 43). Rules of
threats.md 2: hashes required, wheels only, variables of other tools dropped, `.pth` files judged before that environment's
Python first starts. The `complete` marker is written last: without it there is no environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from nedura.errors import StoreError, UpdateError
from nedura.programs import child_environment, find_program
from nedura.records import fsync_folder, make_folder, read_json, write_json, write_new
from nedura.text import clean, redact
from nedura.update.bounded import run_bounded
from nedura.update.generation.durable import sync_files
from nedura.update.generation.interpreter import Interpreter, inspect
from nedura.update.generation.lock_file import Pin, plain_lock, read_lock
from nedura.update.generation.start_hooks import is_start_hook, judge_pth

__all__ = [
    "EnvironmentRequest",
    "discard",
    "dropped_variables",
    "ensure_environment",
    "environment_hash",
    "is_complete",
    "pinned_packages",
    "sync_filesystem",
    "verify_environment",
]

COMPLETE: Final = "complete"
_STEERING: Final = re.compile(r"^(PIP_|UV_|PYTHON|CONDA_|VIRTUAL_ENV$|PIPENV_|POETRY_|LD_|DYLD_)")
_KEEP: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where the machine's certificates are: trust comes from the real environment (decision 53)."""
INSTALL_TIMEOUT: Final = 1800.0


class EnvironmentRequest(NamedTuple):
    """What to build.

    Attributes:
        python: base interpreter.
        lock: the tree's hash-checked requirements file.
        envs: folder that holds environments by hash.
        wheels: folder of wheels to use instead of any index; empty for the configured index.
        extras: names that belong to the hash.
    """

    python: str
    lock: str
    envs: str
    wheels: str = ""
    extras: tuple[str, ...] = ()

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> EnvironmentRequest:
        """From a JSON record."""
        return cls(
            python=str(record["python"]),
            lock=str(record["lock"]),
            envs=str(record["envs"]),
            wheels=str(record.get("wheels") or ""),
            extras=tuple(map(str, record.get("extras", ()))),
        )


def environment_hash(lock: bytes, extras: tuple[str, ...], python: Interpreter) -> str:
    """Name of an environment: 16 hex digits over lock bytes, extras, interpreter path, version and platform."""
    digest = hashlib.sha256()
    for part in (lock, "\0".join(extras).encode(), *(f.encode() for f in python[:3])):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:16]


def is_complete(folder: Path) -> bool:
    """Whether an environment was built to its end."""
    return (folder / COMPLETE).is_file()


def dropped_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of inherited variables that would steer an installer or interpreter; none of them reaches a child."""
    return tuple(sorted(name for name in environ if _STEERING.match(name)))


def ensure_environment(record: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Build the environment that a request asks for, unless it is there.

    Args:
        record: `EnvironmentRequest` as a JSON object.
        environ: where the allow-listed variables come from.

    Returns:
        JSON object: hash, path, site_packages, built, tool, seconds, packages, dropped.

    Raises:
        UpdateError: it cannot be built; nothing of it is left.
    """
    environ = os.environ if environ is None else environ
    request = EnvironmentRequest.read(record)
    start = time.monotonic()
    python = inspect(request.python, environ)
    try:
        lock = Path(request.lock).read_bytes()
    except OSError as error:
        raise UpdateError(
            f"The lock file {clean(os.path.basename(request.lock))} cannot be read: {error.strerror}.",
            stop_class="dependencies",
        ) from error
    name = environment_hash(lock, request.extras, python)
    folder = Path(request.envs) / name
    built, tool = not is_complete(folder), ""
    if built:
        tool = _build(folder, request, python, environ)
    return {
        "hash": name,
        "path": str(folder),
        "site_packages": str(folder / python.library),
        "built": built,
        "tool": tool,
        "seconds": round(time.monotonic() - start, 3),
        "packages": pinned_packages(lock),
        "dropped": list(dropped_variables(environ)),
    }


def pinned_packages(lock: bytes) -> dict[str, str]:
    """Versions by name, as the lock file pins them."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.decode("utf-8", "replace"), re.MULTILINE))


def _build(folder: Path, request: EnvironmentRequest, python: Interpreter, environ: Mapping[str, str]) -> str:
    """Build at the final path; a failure or kill leaves a folder without its marker, which the next try replaces."""
    make_folder(folder.parent)
    discard(folder)
    try:
        _skeleton(folder, python)
        pins = read_lock(Path(request.lock).read_bytes())
        tool = _install(folder, request, pins, python, environ)
        packages = folder / python.library
        _judge_pth(packages)
        _judge_installed(packages, pins, tool)
        _judge_packages(packages)
        _compile(packages, python, environ)
        _seal(folder, python, tool)
    except BaseException:
        discard(folder)
        raise
    return tool


def _skeleton(folder: Path, python: Interpreter) -> None:
    """A virtual environment without pip, as PEP 405 describes it."""
    make_folder(folder / python.library)
    make_folder(folder / "bin")
    os.symlink(python.path, folder / "bin" / "python")
    os.symlink("python", folder / "bin" / "python3")
    os.symlink("lib", folder / "lib64")
    text = f"home = {os.path.dirname(python.path)}\ninclude-system-site-packages = false\nversion = {python.short}\n"
    write_new(folder / "pyvenv.cfg", text.encode())


_FIND_PIP: Final = """
import glob, os, sysconfig
try:
    import pip
    if tuple(int(part) for part in pip.__version__.split(".")[:2]) >= (22, 3):
        print("module")
except (ImportError, ValueError):
    pass
folders = [sysconfig.get_config_var("WHEEL_PKG_DIR") or ""]
try:
    import ensurepip
    folders.insert(0, os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
except ImportError:
    pass
for folder in folders + ["/usr/share/python-wheels"]:
    for wheel in sorted(glob.glob(folder + "/pip-*.whl"))[-1:] if folder else ():
        print(wheel)
"""
"""Asks an interpreter for its pip: an installed one that knows `--python` (22.3), else a wheel that it brings along."""


def _pip(python: Interpreter, environ: Mapping[str, str]) -> list[str]:
    """How to start a pip for an interpreter; it need not be installed anywhere."""
    ask = [python.path, "-I", "-c", _FIND_PIP]
    answer = run_bounded(ask, env=child_environment(environ), timeout=20)
    found = answer.out.decode("utf-8", "replace").splitlines()
    if found and found[0] != "module":
        return [python.path, "-I", f"{found[0]}/pip"]
    return [python.path, "-I", "-m", "pip"]


def _installer(
    folder: Path, request: EnvironmentRequest, lock: str, python: Interpreter, environ: Mapping[str, str]
) -> tuple[str, list[str]]:
    """(name, argv) of what installs here: uv when it is on the safe part of PATH, else pip."""
    target = str(folder / "bin" / "python")
    offline = ["--no-index", "--find-links", request.wheels] if request.wheels else []
    uv = find_program("uv", environ)
    if uv is not None:
        argv = [uv, "pip", "sync", "--python", target, "--require-hashes", "--link-mode", "copy"]
        return "uv", [*argv, "--only-binary", ":all:", "--no-progress", *offline, lock]
    argv = [
        *_pip(python, environ),
        "--python",
        target,
        "--disable-pip-version-check",
        "--no-input",
        "install",
    ]
    argv += ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"]
    return "pip", [*argv, *offline, "-r", lock]


def _install(
    folder: Path,
    request: EnvironmentRequest,
    pins: Sequence[Pin],
    python: Interpreter,
    environ: Mapping[str, str],
) -> str:
    home = make_folder(folder / f".home-{secrets.token_hex(4)}")
    lock = home / "requirements.lock"
    write_new(lock, plain_lock(pins))
    name, argv = _installer(folder, request, str(lock), python, environ)
    env = child_environment(
        environ, keep=_KEEP, PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8", TMPDIR=str(home)
    )
    try:
        answer = run_bounded(argv, env=env, timeout=INSTALL_TIMEOUT, sweep=True)
    except OSError as error:
        raise UpdateError(
            f"{name} cannot be started: {error.strerror}.", stop_class="dependencies"
        ) from error
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if answer.timed_out:
        raise UpdateError(f"{name} did not finish within {INSTALL_TIMEOUT:.0f} s.", stop_class="dependencies")
    if answer.code != 0:
        raise _diagnose(name, (answer.err + answer.out).decode("utf-8", "replace"), request.wheels)
    return name


_UNREACHABLE: Final = (
    r"(?i)connection broken by|name resolution|failed to resolve|establish a new connection|failed to (fetch|connect)"
    r"|temporary failure|connection (refused|reset|error|timed out)|timed out|certificate|dns error|proxy ?error"
)
_CAUSES: Final = (
    (r"(?i)no space left|disk quota exceeded", "the disk is full", "Free some space."),
    (r"exclude-newer", "a setting hides recent releases (exclude-newer)", "Remove exclude-newer from uv.toml."),
    (r"do not match the hashes|hash mismatch|Hash mismatch|HASHES", "a package does not match its hash", ""),
    (r"No module named '?(pip|ensurepip)", "pip is missing", "Install it: apt-get install python3-venv, or uv."),
    (r"\(from versions: (?!none)", "no wheel of the wanted version fits this machine",
     "Check the package index that pip is configured for."),
    (_UNREACHABLE, "the package index cannot be reached", "Check the network, or name a folder of wheels with --wheels."),
    (r"from versions: none", "no wheel of the wanted version was found",
     "Check the network and the package index that pip is configured for, or name a folder of wheels with --wheels."),
    (r"(?i)only-binary|no-build|no wheels?|source distribution|no matching distribution|No solution",
     "no wheel of the wanted version fits this machine", "Check the package index that pip is configured for."),
)  # fmt: skip


def _diagnose(tool: str, output: str, wheels: str = "") -> UpdateError:
    """The cause in words, with the tool's own first telling line. With a folder of wheels no index and no network was asked."""
    lines = [clean(redact(line), 300) for line in output.splitlines() if line.strip()]
    told = next((line for line in lines if re.match(r"(?i)\s*(error|×|╰)", line)), lines[-1] if lines else "")
    for pattern, cause, advice in _CAUSES:
        if re.search(pattern, output):
            if wheels and "--wheels" in advice:
                cause = "no wheel of the wanted version was found"
                advice = f"Put it into the folder of wheels, {clean(wheels, 200)}, or leave --wheels out."
            return UpdateError(
                f"Packages could not be installed: {cause} ({tool}: {told}).",
                stop_class="dependencies",
                advice=advice,
            )
    return UpdateError(f"Packages could not be installed ({tool}: {told}).", stop_class="dependencies")


def _judge_pth(packages: Path) -> None:
    """Refuse a `.pth` file that would run code or lead elsewhere, and start-up modules, before any of it starts."""
    for name in sorted(os.listdir(packages)):
        folder = (packages / name).is_dir()
        if is_start_hook(f"{name}/" if folder else name):
            raise UpdateError(
                f"A package brings {clean(name)}, which would run at each start.", stop_class="dependencies"
            )
        if name.endswith(".pth") and not folder:
            why = judge_pth(str(packages), name)
            if why:
                raise UpdateError(f"A package brings {clean(name)}, {why}.", stop_class="dependencies")


def _judge_installed(packages: Path, pins: Sequence[Pin], tool: str) -> None:
    """Every package of the lock that no marker excuses must be here: a setting of the installer's may send it elsewhere, and exit 0."""
    have = {
        _normal(name.removesuffix(".dist-info").rpartition("-")[0])
        for name in os.listdir(packages)
        if name.endswith(".dist-info")
    }
    missing = [pin.name for pin in pins if not pin.marker and _normal(pin.name) not in have]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        settings = "uv.toml" if tool == "uv" else "pip config list"
        raise UpdateError(
            f"{tool} ended well and did not install {', '.join(map(clean, missing[:3]))}{more} into the environment.",
            stop_class="dependencies",
            advice=f"A setting of its own may send packages elsewhere (target, prefix, root, dry-run). Look into: {settings}",
        )


def _normal(name: str) -> str:
    """A package's name in the one spelling that PEP 503 compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _judge_packages(packages: Path) -> None:
    """Every installed module must be there: a folder that holds bytecode alone imports as an empty package."""
    for record in packages.glob("*.dist-info/RECORD"):
        names = [line.split(",")[0] for line in record.read_text("utf-8", "replace").splitlines()]
        for name in names:
            if name.endswith(".py") and not name.startswith(("/", "..")) and not (packages / name).is_file():
                raise UpdateError(
                    f"{clean(record.parent.name)} is not complete: {clean(name)} is missing.",
                    stop_class="dependencies",
                )


def _compile(packages: Path, python: Interpreter, environ: Mapping[str, str]) -> None:
    """Bytecode, made by an interpreter that does not look into the new environment. What does not compile stays source."""
    argv = [python.path, "-I", "-S", "-m", "compileall", "-q", "-j", "2", "."]
    run_bounded(argv, env=child_environment(environ), cwd=packages, timeout=600, sweep=True)


def content_hash(folder: Path) -> str:
    """One hash over names and bytes of everything installed, bytecode left out."""
    digest = hashlib.sha256()
    for path, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            file = os.path.join(path, name)
            digest.update(os.path.relpath(file, folder).encode("utf-8", "surrogateescape") + b"\0")
            if not os.path.islink(file):
                with open(file, "rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _seal(folder: Path, python: Interpreter, tool: str) -> None:
    """Read-only, durable, and only then complete."""
    packages = folder / python.library
    content = content_hash(packages)
    for path, _, files in os.walk(packages):
        for name in files:
            file = os.path.join(path, name)
            if not os.path.islink(file):
                os.chmod(file, 0o444)
        os.chmod(path, 0o555)
    sync_filesystem(folder)
    write_json(folder / COMPLETE, {"python": python._asdict(), "tool": tool, "content": content}, 0o600)
    fsync_folder(folder.parent)


def sync_filesystem(folder: Path) -> None:
    """Flush the file system that a folder lies on: one call for a whole tree.

    Raises:
        OSError: the disk refused; nothing may rely on the tree.
    """
    import ctypes

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            sync_files(folder)  # `sync` need not wait for the disk (POSIX)
        elif syncfs(handle) != 0:  # `sync` would be silent about it
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(handle)


def verify_environment(folder: Path) -> bool:
    """Whether an environment still is what was built: its marker is there and its content hash agrees."""
    try:
        record = read_json(folder / COMPLETE)
        interpreter = record["python"]
        major, minor, *_ = interpreter["release"]
        return bool(content_hash(folder / f"lib/python{major}.{minor}/site-packages") == record["content"])
    except (StoreError, KeyError, TypeError, ValueError):
        return False


def discard(folder: Path) -> None:
    """Remove a tree of ours without following a link, read-only folders included.

    Raises:
        UpdateError: the system refused, or this platform cannot do it safely.
    """
    if folder.is_symlink():
        raise UpdateError(f"{clean(folder.name)} is a link; it is left alone.", stop_class="store")
    if not folder.exists():
        return
    if not shutil.rmtree.avoids_symlink_attacks:
        raise UpdateError("This platform cannot remove a folder safely.", stop_class="store")
    for path, names, _ in os.walk(folder):
        os.chmod(path, 0o700)
        names[:] = [name for name in names if not os.path.islink(os.path.join(path, name))]
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise UpdateError(
            f"{clean(folder.name)} cannot be removed: {error.strerror}.", stop_class="store"
        ) from error
