"""`pm sync`: make what is current whole again, from the same commit and without the network. A failure leaves it as it is."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import ClassVar, final

import attrs

from nedura.clock import Clock, iso
from nedura.errors import NeduraError, RefusedError, UpdateError
from nedura.product import Product
from nedura.records import make_folder, write_json
from nedura.update.bounded import in_thread
from nedura.update.commit.sealed import commit_sealed
from nedura.update.generation.environment import verify_environment
from nedura.update.generation.generations import point, read_manifest
from nedura.update.generation.prepare import prepare
from nedura.update.ledger.lock import UpdateLock
from nedura.update.options import UpdateOptions
from nedura.update.options_check import check_run_id, check_wheels
from nedura.update.planning.admission import admit
from nedura.update.run import Run
from nedura.update.stages import lock_file
from nedura.update.validation.validate import validate
from nedura.update.validation.verdict import PACKAGES_CHANGED
from nedura.wire import Event

__all__ = ["EVENTS", "PmSynced", "pm_sync"]


@final
@attrs.frozen(kw_only=True)
class PmSynced:
    """What a sync did.

    Attributes:
        update_id: id that its receipt is filed under.
        changed: a new generation was made current.
        generation: what is current now.
        receipt: its file.
    """

    kind: ClassVar[str] = "pm_synced"
    update_id: str
    changed: bool
    generation: str
    receipt: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return "Repaired what runs." if self.changed else "Everything is in order."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        if not self.changed:
            return f"In order: generation {self.generation} is what its manifest says."
        return (
            f"Repaired: generation {self.generation} is current. Members move to it when they are restarted."
        )


EVENTS = (PmSynced,)


async def pm_sync(
    root_home: Path,
    product: Product,
    clock: Clock,
    environ: Mapping[str, str],
    *,
    update_id: str = "",
    wheels: Path | None = None,
) -> AsyncGenerator[Event, None]:
    """Verify what is current; build it again from the same commit when it is not whole.

    Args:
        root_home: the root home.
        product: names.
        clock: time seam.
        environ: where children's variables come from.
        update_id: id of an update that this belongs to; default a new one.
        wheels: folder of wheels instead of an index.

    Raises:
        UsageError: there is no such folder of wheels, or that is no id.
        RefusedError: an update runs, or this is no sealed install.
        UpdateError, StoreError: it cannot be repaired; what is current is untouched.
    """
    check_wheels(wheels)
    if update_id:
        check_run_id(update_id)
    run = Run(
        run_id=update_id or secrets.token_hex(16),
        root_home=root_home,
        home=root_home,
        clock=clock,
        started_at=clock.time(),
        environ=environ,
        product=product,
        options=UpdateOptions(wheels=wheels, retry=True),
    )
    await _refuse_others(run)
    run.notes["target_commit"] = run.before.code_sha
    lock = UpdateLock(run.root_home, lock_file(run), run.product, run.environ)
    lock.acquire(run.started_at)
    try:
        steps = _steps(run)
        try:
            async for event in steps:
                yield event
            done = await in_thread(_done, run)
        except NeduraError as error:
            _receipt(run, "failed", error.message)
            raise
        finally:
            await steps.aclose()
        yield done
    finally:
        lock.release()


async def _refuse_others(run: Run) -> None:
    """Only a sealed install can be built again.

    Raises:
        RefusedError: it is none, or this is not the one to do it.
    """
    refusal = await admit(run)
    if refusal is not None:
        raise RefusedError(refusal.message, advice=refusal.advice)
    if run.layout != "sealed" or run.install is None or not run.before.code_sha:
        advice = "Make it one with: nedura pm convert"
        if run.layout != "checkout":  # convert needs a checkout
            advice = "A sealed install is made from a git checkout, there: ./run install"
        raise RefusedError("This is no sealed install.", advice=advice)


async def _steps(run: Run) -> AsyncGenerator[Event, None]:
    for stage in (prepare, validate):
        events = stage(run)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


def _done(run: Run) -> PmSynced:
    if run.candidate is None or run.install is None:
        raise UpdateError("Nothing was prepared.", stop_class="internal")
    env = read_manifest(run.candidate.folder).env
    if not run.changed and env and not verify_environment(run.install.envs / env):
        raise UpdateError(
            f"The installed packages ({env}) are not what they were: a file of them was changed.",
            stop_class=PACKAGES_CHANGED,
            advice=f"The launcher repairs them: {run.install.launcher(run.product.command)} pm sync",
        )
    if run.changed:
        former = run.install.pointed(run.install.previous)
        commit_sealed(run.install, run.candidate)
        if former is not None:  # the same version again: the way back stays the version before
            point(run.install, run.install.previous, former)
    receipt = _receipt(run, "success", "")
    return PmSynced(
        update_id=run.run_id,
        changed=run.changed,
        generation=run.candidate.identity.generation,
        receipt=str(receipt),
    )


def _receipt(run: Run, outcome: str, reason: str) -> Path:
    """PM's own receipt, filed under the update's id."""
    folder = make_folder(run.root_home / "logs" / "pm_receipts")
    path = folder / f"pm_{run.run_id}.json"
    candidate = run.candidate
    record = {
        "schema": 1,
        "update_id": run.run_id,
        "started_at": iso(run.started_at),
        "finished_at": iso(run.clock.time()),
        "pm_sync_outcome": outcome,
        "pm_reason": reason,
        "changed": run.changed if outcome == "success" else False,
        "generation": candidate.identity.generation if candidate is not None else "",
    }
    write_json(path, record)
    return path
