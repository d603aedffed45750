"""The candidate's environment, built by the candidate's own code (decision 43)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.errors import StoreError, UpdateError
from nedura.installs import InstallPaths
from nedura.product import Product
from nedura.programs import child_environment
from nedura.records import make_folder, read_json, write_json
from nedura.text import clean
from nedura.update.bounded import run_bounded
from nedura.update.events import StepDone
from nedura.update.events_completion import PackageReport, package_report
from nedura.update.generation.candidate import Building
from nedura.update.generation.environment import (
    INSTALL_TIMEOUT,
    discard,
    ensure_environment,
    is_complete,
    pinned_packages,
)

__all__ = ["Environment", "changed_packages", "prepare_environment"]


@attrs.frozen(kw_only=True)
class Environment:
    """What came of it: the environment's name, and what to note of an install step (None when there was none)."""

    name: str
    step: StepDone | None = None
    report: PackageReport | None = None


def prepare_environment(
    building: Building, paths: InstallPaths, product: Product, wheels: Path | None
) -> Environment:
    """Make the environment of a candidate unless it is there: with unchanged inputs there is no install step at all.

    Args:
        building: the candidate; its files are written.
        paths: the install.
        product: names the bootstrap and the lock file.
        wheels: folder of wheels instead of an index.

    Raises:
        UpdateError: it cannot be built; nothing of it is left, nothing was committed.
    """
    known = building.inputs.env
    if known and is_complete(paths.envs / known):
        return Environment(name=known)
    request: dict[str, Any] = {
        "schema": 1,
        "python": building.inputs.python.path,
        "lock": str(building.tree / product.lock_file),
        "envs": str(paths.envs),
        "wheels": str(wheels or ""),
    }
    bootstrap = building.tree / product.bootstrap
    answer = (
        _by_new_code(bootstrap, request, building, paths)
        if bootstrap.is_file()
        else ensure_environment(request, building.environ)
    )
    detail = f"{answer.get('tool') or 'nothing to do'}, {len(answer.get('packages', {}))} packages, {answer.get('seconds', 0)} s"
    changed = changed_packages(_old_packages(paths, product), answer.get("packages", {}))
    if changed:
        detail += f"; changed: {', '.join(changed[:12])}" + (
            f" and {len(changed) - 12} more" if len(changed) > 12 else ""
        )
    dropped = answer.get("dropped") or []
    if dropped:
        detail += f"; ignored variables: {', '.join(map(str, dropped))}"
    return Environment(
        name=_checked(answer, paths),
        step=StepDone(name="dependencies", detail=clean(detail, 480)),
        report=package_report(answer),
    )


def changed_packages(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What an environment changes, one text a package."""
    names = sorted({*old, *new})
    return [
        f"{clean(name, 60)} {clean(old.get(name, 'none'), 30)} -> {clean(new.get(name, 'none'), 30)}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _old_packages(paths: InstallPaths, product: Product) -> dict[str, str]:
    current = paths.pointed()
    if current is None:
        return {}
    try:
        return pinned_packages((current / "tree" / product.lock_file).read_bytes())
    except OSError:
        return {}


def _checked(answer: dict[str, Any], paths: InstallPaths) -> str:
    name = str(answer.get("hash", ""))
    if not name.isalnum() or not is_complete(paths.envs / name):
        raise UpdateError("The new version's environment is not complete.", stop_class="dependencies")
    return name


def _by_new_code(
    bootstrap: Path, request: dict[str, Any], building: Building, paths: InstallPaths
) -> dict[str, Any]:
    """Start the candidate's bootstrap by path, without site, and read its answer."""
    folder = make_folder(paths.folder / f".tmp.env.{secrets.token_hex(6)}")
    try:
        write_json(folder / "request.json", request)
        done = run_bounded(
            [building.inputs.python.path, "-I", "-S", "-B", "-X", "utf8", str(bootstrap), "environment",
             str(folder / "request.json"), str(folder / "result.json")],
            env=child_environment(building.environ, keep=("SSL_CERT_FILE", "SSL_CERT_DIR")),
            timeout=INSTALL_TIMEOUT + 60,
            sweep=True,
        )  # fmt: skip
        try:
            answer = read_json(folder / "result.json")
        except StoreError:
            answer = None
        if done.code == 0 and isinstance(answer, dict):
            return answer
        raise _failure(answer, done.err)
    finally:
        discard(folder)


def _failure(answer: Any, err: bytes) -> UpdateError:
    told = str(answer.get("reason", "")) if isinstance(answer, dict) else ""
    told = told.removeprefix("UpdateError: ") or clean(err[-300:].decode("utf-8", "replace"), 200)
    advice = clean(answer.get("advice", "")) if isinstance(answer, dict) else ""
    return UpdateError(
        clean(told, 400) or "The new version's environment cannot be built.",
        stop_class="dependencies",
        advice=advice,
    )
