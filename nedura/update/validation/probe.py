"""The probe: one gateway of the candidate, booted aside on copied state; it must say who it is (decision 33)."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nedura.errors import NeduraError, UpdateError
from nedura.fleet import ask
from nedura.installs import InstallPaths
from nedura.product import Product
from nedura.programs import DEFAULT_PATH
from nedura.records import make_folder
from nedura.text import clean, counted
from nedura.update.bounded import Finished, in_thread, run_bounded
from nedura.update.generation.environment import discard
from nedura.update.run import Candidate
from nedura.update.validation.probe_state import Copied, copy_state, smallest
from nedura.update.validation.verdict import CHECK_KILLED, killed_by

__all__ = ["PROBE_DEADLINE", "gateway_module", "run_probe"]

PROBE_DEADLINE: Final = 30.0
POLL: Final = 0.05
CLOSED: Final = "http://127.0.0.1:9"
"""Discard port: whoever follows it reaches nobody."""


def gateway_module(product: Product, tree: Path) -> str:
    """The module that a gateway of this tree starts from; empty when it has none."""
    for module in product.gateway_modules:
        for root in product.roots:
            base = tree / root / module.replace(".", "/")
            if base.with_suffix(".py").is_file() or (base / "__main__.py").is_file():
                return module
    return ""


def probe_environment(product: Product, folder: Path) -> dict[str, str]:
    """All that the probe's process sees: own homes, closed addresses, nothing inherited."""
    return {
        "PATH": DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_STATE_HOME": str(folder / "state"),
        product.env("HOME"): str(folder / "home"),
        product.env("GATEWAY_LOCK_DIR"): str(folder / "locks"),
        product.env("SHARED_AUTH_DIR"): str(folder / "shared"),
        product.env("PORTAL_BASE_URL"): CLOSED,
        product.env("PROBE"): "1",
        product.env("PROBE_PARENT"): str(os.getpid()),
        "NOUS_INFERENCE_BASE_URL": CLOSED,
    }


async def run_probe(
    paths: InstallPaths,
    candidate: Candidate,
    product: Product,
    profiles: Sequence[tuple[str, Path]],
    *,
    deadline: float = PROBE_DEADLINE,
    arguments: Sequence[str] = (),
) -> str:
    """Boot a probe and wait for its answer; it and its state are always removed.

    Args:
        paths: the install.
        candidate: what would become current.
        product: names.
        profiles: profiles to choose the smallest of.
        deadline: seconds from its start to its answer.
        arguments: further arguments of the gateway.

    Returns:
        what was proven, for the receipt.

    Raises:
        UpdateError: it did not answer in time, ended early, or is somebody else.
    """
    module = gateway_module(product, candidate.tree)
    if not module:
        return "this tree has no gateway"
    folder = paths.folder / f".tmp.probe.{secrets.token_hex(4)}"
    try:
        for name in ("run", "state", "locks", "shared"):
            make_folder(folder / name)
        copied = await in_thread(_copy, profiles, folder / "home")
        argv = [str(candidate.python), "-I", "-B", "-X", "utf8", "-m", module, *arguments]
        environ = probe_environment(product, folder)
        answer = await _boot(argv, environ, folder, deadline)
    finally:
        await asyncio.to_thread(discard, folder)
    _check(answer, candidate)
    number = candidate.identity.generation
    which = (
        f"generation {number}"
        if number
        else f"{clean(candidate.identity.code_version or 'the new version', 40)}"
    )
    return f"gateway of {which} answered, {counted(len(copied.names), 'file')} of copied state{copied.note}"


def _copy(profiles: Sequence[tuple[str, Path]], target: Path) -> Copied:
    chosen = smallest(profiles)
    if chosen is None:
        make_folder(target)
        return Copied()
    try:
        return copy_state(chosen[1], target)
    except (NeduraError, OSError) as error:
        raise UpdateError(
            f"The state of profile {clean(chosen[0])} cannot be copied for the probe: {clean(error)}",
            stop_class="probe",
        ) from error


async def _boot(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, deadline: float
) -> dict[str, Any]:
    """Start it, ask it until it answers, end it."""
    process = asyncio.ensure_future(
        in_thread(run_bounded, argv, env=environ, cwd=folder, timeout=deadline, sweep=True)
    )
    try:
        while not process.done():
            answer = await ask(folder / "home", "identify", timeout=1.0, environ=environ)
            if answer is not None:
                return answer
            await asyncio.wait({process}, timeout=POLL)
        raise _died(process.result(), deadline)
    finally:
        if not process.done():
            process.cancel()
            await asyncio.wait({process})


def _died(done: Finished, deadline: float) -> UpdateError:
    lines = [clean(line, 200) for line in done.err.decode("utf-8", "replace").splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    how = f"did not answer within {deadline:.0f} s" if done.timed_out else f"ended with {done.code}"
    killed = killed_by(done)
    return UpdateError(
        f"The probe of the new version {f'was ended by {killed}' if killed else how}{last}",
        stop_class=CHECK_KILLED if killed else "probe",
        advice="Nothing was stopped. --no-probe skips this check.",
    )


def _check(answer: Mapping[str, Any], candidate: Candidate) -> None:
    code = answer.get("code")
    told = {**answer, **code} if isinstance(code, Mapping) else dict(answer)
    for name in ("generation", "code_sha", "install_id"):
        expected, found = getattr(candidate.identity, name), told.get(name, "")
        if expected and found != expected:
            raise UpdateError(
                f"The probe of the new version says {name} {clean(found, 60) or 'nothing'}, not {expected}.",
                stop_class="probe",
            )
