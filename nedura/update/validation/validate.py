"""Validate: the candidate compiles, imports and boots, before anything is stopped (decision 33; order of threats.md 2)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from nedura.errors import StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.product import Product
from nedura.profiles import list_profiles
from nedura.programs import DEFAULT_PATH
from nedura.text import clean
from nedura.update.bounded import in_thread, run_bounded
from nedura.update.commit.guard import launch_failure
from nedura.update.events import Progress, Skipped, StepDone
from nedura.update.generation.environment import verify_environment
from nedura.update.generation.failed import forget_failed, remember_failed
from nedura.update.generation.generations import Manifest, read_manifest
from nedura.update.run import Candidate, Run
from nedura.update.source.repository import open_repository
from nedura.update.validation.essentials import check_essentials
from nedura.update.validation.probe import run_probe
from nedura.update.validation.rehearsal import run_rehearsal
from nedura.update.validation.verdict import CHECK_KILLED, PACKAGES_CHANGED, condemns, killed_by
from nedura.wire import Event

__all__ = ["import_closure", "validate"]

IMPORT_TIMEOUT: Final = 120.0
LATE_PACKAGES: Final = ("nedura", "nedura_cli")
"""Packages of ours whose other modules are loaded late: the next update, the way back and the repair are made of them (C048)."""
NOT_LOADED: Final = ("nedura.testing", "nedura._old_updater", "nedura.update_")
"""What no start of this version loads: tests' own, and names that older releases take from a newer tree."""
WHOLE: Final = ("nedura.update.", "nedura_cli.update.", "nedura_cli.pm.")
"""No package is optional for these: without one of them that is in no lock file there is no next update and no way back."""
_IMPORT: Final = """
import importlib, json, os, pkgutil, sys
import _generation
asked = json.load(sys.stdin)
for name in asked["launch"]:
    importlib.import_module(name)
found = {n: getattr(m, "__file__", None) or "" for n, m in sorted(sys.modules.items())}
hollow = [n for n, m in sys.modules.items() if hasattr(m, "__path__") and not getattr(m, "__file__", None)]
hollow = [n for n in hollow if not any(o.startswith(n + ".") for o in found)]
late = []
def walk(folder, prefix):
    for info in pkgutil.iter_modules([folder], prefix):
        if info.name.startswith(tuple(asked["skip"])) or info.name.endswith("__main__"):
            continue
        file = os.path.join(folder, info.name.rpartition(".")[2] + ("/__init__.py" if info.ispkg else ".py"))
        if os.path.relpath(file, _generation.GENERATION + "/tree") in asked["added"]:
            continue
        try:
            importlib.import_module(info.name)
        except ImportError as error:
            ours = (error.name or "").partition(".")[0] in asked["late"]
            if ours or (info.name + ".").startswith(tuple(asked["whole"])):
                late.append([info.name, type(error).__name__, str(error)])
            continue
        except BaseException as error:
            late.append([info.name, type(error).__name__, str(error)])
            continue
        if info.ispkg:
            walk(os.path.join(folder, info.name.rpartition(".")[2]), info.name + ".")
for top in asked["late"]:
    for place in getattr(sys.modules.get(top), "__path__", ()):
        if place.startswith(_generation.GENERATION + os.sep):
            walk(place, top + ".")
sys.stdout.write(json.dumps({"root": _generation.GENERATION, "files": found, "hollow": hollow, "late": late}))
"""
"""Imports the launch modules and tells every module that came with them. A folder that holds bytecode alone is hollow (C029). Then the
late modules of ours: one that lacks a package of somebody else's is an optional extra, unless it is of the update itself; any other
failure is told."""


async def validate(run: Run) -> AsyncGenerator[Event, None]:
    """Judge the candidate; nothing live is touched.

    Args:
        run: the update; its candidate is prepared.

    Raises:
        UpdateError: it is not fit; its inputs are remembered and refused until they change, unless the machine was at fault.
    """
    candidate, paths = run.candidate, run.install
    if candidate is None or paths is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    if not run.changed:
        yield Skipped(name="validate", reason="nothing changed")
        return
    checks = _checks(run, candidate, paths)
    try:
        async for event in checks:
            yield event
    except UpdateError as error:
        _name_edits(error, candidate)
        if condemns(error):
            remember_failed(paths, candidate.inputs, error.message, run.clock.time())
        raise
    finally:
        await checks.aclose()
    if run.options.retry:  # it failed before, and does not any more
        forget_failed(paths, candidate.inputs)


def _name_edits(error: UpdateError, candidate: Candidate) -> None:
    """A version that carries local edits may fail for them: what to do is not the publisher's alone."""
    try:
        edits = sorted(read_manifest(candidate.folder).edits)
    except StoreError:
        return
    if edits and error.stop_class not in (CHECK_KILLED, PACKAGES_CHANGED):
        more = f" and {len(edits) - 3} more" if len(edits) > 3 else ""
        shown = ", ".join(clean(path, 60) for path in edits[:3])
        error.advice = f"Nothing was changed. Look first at the local edits that it carries: {shown}{more}."


def _running_tree(run: Run, paths: InstallPaths) -> Path | None:
    """The files that run now."""
    if run.layout != "sealed":
        return run.checkout
    current = paths.pointed()
    return None if current is None else current / "tree"


async def _checks(run: Run, candidate: Candidate, paths: InstallPaths) -> AsyncGenerator[Event, None]:
    check_essentials(candidate.tree, _running_tree(run, paths), run.product)
    yield Progress(stage="validate", label="imports")
    began = time.monotonic()
    count = await in_thread(import_closure, candidate, run.product, paths)
    yield StepDone(name="imports", detail=f"{count} modules, {time.monotonic() - began:.1f} s")
    profiles = [(profile.name, profile.home) for profile in list_profiles(run.root_home)]
    rehearsed = await in_thread(run_rehearsal, paths, candidate, profiles, stripped(candidate.folder))
    yield StepDone(name="rehearsal", detail=rehearsed)
    if not run.options.probe:
        yield Skipped(name="probe", reason="--no-probe")
        return
    yield Progress(stage="validate", label="probe")
    began = time.monotonic()
    proof = await run_probe(paths, candidate, run.product, profiles)
    yield StepDone(name="probe", detail=f"{proof}, {time.monotonic() - began:.1f} s")


def stripped(folder: Path) -> dict[str, str]:
    """Environment of an import probe: nothing inherited, no secret, no home of the owner."""
    return {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", "HOME": str(folder)}


def import_closure(candidate: Candidate, product: Product, paths: InstallPaths) -> int:
    """Import the launch modules in a stripped child and look at everything that came with them.

    Returns:
        number of modules of the tree that were imported.

    Raises:
        UpdateError: an import fails, a module comes from elsewhere, or a package is hollow.
    """
    manifest = read_manifest(candidate.folder)
    broken = launch_failure(candidate.tree, product) if manifest.broken else ""
    if broken:
        raise UpdateError(f"The new version does not compile: {broken}", stop_class="target_syntax_error")
    if manifest.env and not verify_environment(paths.envs / manifest.env):
        raise UpdateError(
            "The installed packages are not what they were: a file of them was changed.",
            stop_class=PACKAGES_CHANGED,
            advice=f"Repair them first: {product.command} pm sync",
        )
    modules = [name for name in product.launch_modules if _in_tree(candidate.tree, product, name)]
    asked = json.dumps(
        {
            "launch": modules,
            "late": LATE_PACKAGES,
            "skip": NOT_LOADED,
            "whole": WHOLE,
            "added": _added(manifest, paths),
        }
    )
    done = run_bounded(
        [str(candidate.python), "-I", "-B", "-X", "utf8", "-c", _IMPORT],
        env=stripped(candidate.folder),
        stdin=asked.encode(),
        timeout=IMPORT_TIMEOUT,
        sweep=True,
    )
    if name := killed_by(done):
        raise UpdateError(
            f"The import check of the new version was ended by {name}.",
            stop_class=CHECK_KILLED,
            advice="Nothing was changed. Try again; look whether memory is short: journalctl -k",
        )
    if done.code != 0:
        raise _import_failure(done.err, done.timed_out)
    return _judge_modules(done.out, candidate, product)


def _added(manifest: Manifest, paths: InstallPaths) -> list[str]:
    """Files that are the owner's alone: one that nothing loads is not run here, whatever it is for."""
    if not manifest.edits:
        return []
    listed = open_repository(paths, None).run(
        "ls-tree", "-r", "-z", "--name-only", manifest.identity.code_sha, ok=(0, 128)
    )
    return sorted(manifest.edits.keys() - set(listed.text.split("\0")))


def _in_tree(tree: Path, product: Product, module: str) -> bool:
    paths = [tree / root / module.replace(".", "/") for root in product.roots]
    return any(path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() for path in paths)


def _import_failure(err: bytes, timed_out: bool) -> UpdateError:
    lines = [clean(line, 300) for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    what = f"took longer than {IMPORT_TIMEOUT:.0f} s" if timed_out else (lines or ["it ended early"])[-1]
    return UpdateError(
        f"The new version does not import: {what}",
        stop_class="target_syntax_error" if "SyntaxError" in what else "import",
        advice="Nothing was changed. Wait for a fixed version.",
    )


def _judge_modules(out: bytes, candidate: Candidate, product: Product) -> int:
    try:
        answer = json.loads(out[out.rindex(b'{"root"') :])
        files, hollow = dict(answer["files"]), list(answer["hollow"])
        late = [": ".join(map(str, fault)) for fault in answer["late"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UpdateError("The import probe gave no answer.", stop_class="import") from error
    if answer["root"] != str(candidate.folder):
        raise UpdateError("The import probe ran from another generation.", stop_class="import")
    if hollow:
        raise UpdateError(
            f"Packages are not complete: {', '.join(clean(name, 60) for name in sorted(hollow)[:5])}",
            stop_class="dependencies",
        )
    if late:
        raise _import_failure("\n".join(reversed(late)).encode(), False)
    tops = {name.split(".")[0] for name in product.launch_modules}
    mine = {name: file for name, file in files.items() if name.split(".")[0] in tops and file}
    stray = [name for name, file in mine.items() if not file.startswith(f"{candidate.tree}/")]
    if stray:
        raise UpdateError(
            f"Modules come from outside the new version: {', '.join(sorted(stray)[:3])}", stop_class="import"
        )
    return len(mine)
