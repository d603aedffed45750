"""The `pm` commands: what is kept, what is whole, what may go."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nedura.clock import SystemClock
from nedura.errors import RefusedError
from nedura.homes import process_home, root_home
from nedura.product import NEDURA
from nedura.text import clean, utc_text
from nedura.update import (
    ReceiptStore,
    collect_garbage,
    find_subject,
    install_checkout,
    pm_status,
    pm_sync,
    status_of,
)

if TYPE_CHECKING:
    from nedura.update import Subject
    from nedura_cli.output import Output

__all__ = ["convert", "gc", "last_run", "status", "sync"]


def _root() -> Path:
    return root_home(process_home())


def _subject() -> Subject:
    return find_subject(_root(), NEDURA, dict(os.environ))


def last_run(receipt: Mapping[str, Any]) -> str:
    """How a run stands and since when: `interrupted` once its processes are gone, as `logs update` says it."""
    run = status_of(receipt)
    return f"{clean(run.outcome)} {utc_text(run.finished_at or run.started_at)}".strip()


def status(args: argparse.Namespace, output: Output) -> int:
    """Show generations and environments; exit 1 when something is not whole."""
    subject = _subject()
    if subject.install is None:
        raise RefusedError("There is no install here.", advice="nedura install --source DIR makes one.")
    newest = ReceiptStore(_root()).newest()
    last = last_run(newest) if newest else ""
    found = pm_status(subject.install, subject.layout, verify=args.verify, last_update=last)
    output.event(found)
    if args.verify and found.healthy and found.generations:
        output.line("  every byte is what its manifest says")
    return 0 if found.healthy else 1


def sync(args: argparse.Namespace, output: Output) -> int:
    """Make what is current whole again."""

    async def run() -> None:
        events = pm_sync(
            _root(), NEDURA, SystemClock(), dict(os.environ), update_id=args.update_id, wheels=args.wheels
        )
        async with aclosing(events):
            async for event in events:
                output.event(event)

    asyncio.run(run())
    return 0


def gc(args: argparse.Namespace, output: Output) -> int:
    """Remove what nobody uses."""
    subject = _subject()
    if subject.install is None:
        raise RefusedError("There is no install here.")
    install = subject.install

    async def run() -> bool:
        bad = False
        async with aclosing(collect_garbage(install, SystemClock(), dict(os.environ))) as events:
            async for event in events:
                output.event(event)
                bad = bad or bool(event.errors)
        return bad

    return 1 if asyncio.run(run()) else 0


def convert(args: argparse.Namespace, output: Output) -> int:
    """Make a checkout install a sealed one."""
    subject = _subject()
    if subject.layout == "sealed" and subject.install is not None and subject.code.generation:
        output.line("This install is sealed already.")
        output.record({"kind": "converted", "changed": False})
        return 0
    if subject.layout == "zip":
        raise RefusedError(
            "An unpacked release has no git checkout to convert.",
            advice="A sealed install is made from a git checkout, there: ./run install",
        )
    if subject.checkout is None:
        raise RefusedError("There is no git checkout to convert.")
    output.event(
        install_checkout(subject.checkout, _root(), environment=args.environment, report=output.event)
    )
    return 0
