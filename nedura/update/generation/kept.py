"""Generations that exist already, as candidates: what is current (finish only), and what an earlier run replaced (rollback)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

from nedura.errors import StoreError, UpdateError, UsageError
from nedura.installs import read_identity
from nedura.update.commit_point import paths_of
from nedura.update.events import Prepared
from nedura.update.generation.thin import python_of
from nedura.update.ledger.receipt import Receipt, is_finished
from nedura.update.ledger.receipts import ReceiptStore
from nedura.update.run import Candidate, Run
from nedura.wire import Event

__all__ = ["candidate_of", "current_candidate", "find_receipt", "prepare_current", "rollback_target"]

_MOVED: Final = ("success", "partial", "interrupted")


def candidate_of(folder: Path, *, inputs: str = "") -> Candidate:
    """A whole generation as a candidate.

    Raises:
        StoreError: it states no identity.
    """
    identity = read_identity(folder)
    return Candidate(
        layout="sealed",
        identity=identity,
        folder=folder,
        tree=folder / "tree",
        python=python_of(folder),
        inputs=inputs,
        target=identity.code_sha,
    )


def current_candidate(run: Run) -> Candidate:
    """What runs now, as the candidate of a run that only finishes what is owed.

    Raises:
        UpdateError: nothing is current.
    """
    if run.layout != "sealed":
        checkout = run.checkout
        if checkout is None:
            raise UpdateError("There is no install here to finish.", stop_class="no_install")
        python = Path(str(run.notes.get("python") or ""))
        return Candidate(
            layout=run.layout, identity=run.before, folder=checkout, tree=checkout, python=python
        )
    folder = paths_of(run).pointed()
    if folder is None:
        raise UpdateError("Nothing is installed here yet.", stop_class="no_install")
    return candidate_of(folder)


async def prepare_current(run: Run) -> AsyncGenerator[Event, None]:
    """Prepare of a run that moves nothing."""
    candidate = await asyncio.to_thread(current_candidate, run)
    yield Prepared(candidate=candidate, changed=False)


def find_receipt(store: ReceiptStore, wanted: str) -> Receipt:
    """The receipt that a rollback goes back behind: its path, its id, or the newest that moved the code.

    Raises:
        UsageError: there is none.
    """
    if wanted:
        place = Path(wanted)
        found = store.find(wanted)
        if found is None and place.is_file():
            try:
                found = store.read(place)
            except StoreError as error:
                raise UsageError(f"{place.name} is no receipt: {error.message}") from error
        if found is None:
            raise UsageError("There is no receipt of that name.", advice="See: nedura logs update --last 20")
        return found
    for receipt in store.recent():
        if is_finished(receipt) and receipt.get("outcome") in _MOVED and receipt.get("committed_at"):
            return receipt
    raise UsageError("No receipt here says that the code moved.", advice="See: nedura logs update --last 20")


def rollback_target(receipt: Mapping[str, Any], kept: Mapping[str, str]) -> str:
    """Name of the generation that was current before a receipt's run.

    Args:
        receipt: the receipt.
        kept: generation name -> commit id of what is still on disk.

    Raises:
        UpdateError: it is not kept any more.
    """
    before = receipt.get("pre_update") or {}
    name, sha = str(before.get("generation", "")), str(before.get("sha", ""))
    if name in kept and (not sha or kept[name] == sha):
        return name
    same = [other for other, commit in kept.items() if sha and commit == sha]
    if same:
        return same[-1]
    there = ", ".join(f"{other} ({commit[:8]})" for other, commit in kept.items()) or "nothing"
    raise UpdateError(
        f"Generation {name or 'unknown'} ({sha[:8] or 'unknown commit'}) is not kept any more.",
        stop_class="not_kept",
        advice=f"Kept: {there}.",
    )
