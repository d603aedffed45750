"""The seams of the completion and their real defaults."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nedura.installs import CodeIdentity
from nedura.product import Product
from nedura.update.completion.request import CompletionRequest
from nedura.update.completion.windows_resume import NoStarter, Starter
from nedura.update.fleet_parts import FleetParts
from nedura.wire import Event

if TYPE_CHECKING:
    from nedura.update.completion.second_half import Completion

__all__ = ["CompletionParts", "Steps", "default_parts", "runs"]

Steps = Sequence[tuple[str, Sequence[tuple[str, AsyncGenerator[Event, None]]]]]
"""Stage -> its steps, each a follow-up name and the generator that does it."""


def runs(expected: CodeIdentity, code: CodeIdentity) -> bool:
    """Whether some code is the expected one: by generation in a sealed install, else by commit (decision 39)."""
    if expected.generation:
        return code.generation == expected.generation and code.install_id in ("", expected.install_id)
    return bool(expected.code_sha) and code.code_sha == expected.code_sha


async def _nothing(completion: Completion) -> AsyncGenerator[Event, None]:
    """No aftermath."""
    return
    yield


@attrs.frozen(kw_only=True)
class CompletionParts:
    """What a completion works with.

    Attributes:
        fleet: the fleet.
        upkeep: builds and maintenance for a completion.
        aftermath: what nobody owes, once everything is settled: the source follows, old generations go.
        runs: whether a member's code is the expected one.
        starter: starts what was paused on Windows.
    """

    fleet: FleetParts
    upkeep: Callable[[Completion], Steps]
    aftermath: Callable[[Completion], AsyncGenerator[Event, None]] = _nothing
    runs: Callable[[CodeIdentity, CodeIdentity], bool] = runs
    starter: Starter = attrs.field(factory=NoStarter)


def default_parts(request: CompletionRequest, product: Product) -> CompletionParts:
    """The real ones."""
    from nedura.update.completion.upkeep import aftermath, upkeep
    from nedura.update.fleet_real import RealFleet

    return CompletionParts(
        fleet=RealFleet(
            root_home=Path(request.root_home), install_id=request.install_id, product=product, watched=True
        ),
        upkeep=upkeep,
        aftermath=aftermath,
    )
