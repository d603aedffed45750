"""The seams of `update()` and their real defaults, looked up at call time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs

from nedura.update.run import Run
from nedura.wire import Event

if TYPE_CHECKING:
    from nedura.update.completion.child import Child
    from nedura.update.completion.request import CompletionRequest
    from nedura.update.fleet_parts import FleetParts

__all__ = ["Refusal", "StageFunction", "UpdateParts", "default_parts"]

StageFunction = Callable[[Run], AsyncGenerator[Event, None]]


@attrs.frozen(kw_only=True)
class Refusal:
    """Admission said no (facts/update.md 2.1).

    Attributes:
        code: closed token.
        message: for people.
        command: what to run instead, may be empty.
        exit_code: 2, or 0 for a checkout that declares another owner.
    """

    code: str
    message: str
    command: str = ""
    exit_code: int = 2

    @property
    def advice(self) -> str:
        """What to do instead, in words; empty when nothing is known."""
        return f"Update it with: {self.command}" if self.command else ""


class Spawn(Protocol):
    """Starts the completion child."""

    def __call__(
        self, run: Run, request: CompletionRequest, folder: Path, log: Callable[[str], None]
    ) -> Child:
        """A child that is not started yet."""
        ...


async def _no_scope() -> Sequence[str]:
    """Where nothing has to be left."""
    return ()


def _nothing_left(run: Run) -> None:
    """Where nothing has to go."""


@attrs.frozen(kw_only=True)
class UpdateParts:
    """What `update()` works with; each field may be replaced.

    Attributes:
        admit: finds the install, its layout and current code, sets them on the run, and may refuse.
        plan, snapshot, prepare, validate, commit: the stages; prepare's last event is `Prepared`, commit's is `Committed`.
        take_back: undoes a sealed commit by the pointer, one rename.
        fleet: the fleet as the old code sees it.
        remember_failed: keeps the inputs of a generation whose first member failed (decision 34).
        spawn: makes the completion child.
        scope: words before its command line that move it out of a gateway's control group (decision 21).
        tidy: takes away what the run itself made and nobody needs after its end, however it ended; never raises.
    """

    admit: Callable[[Run], Awaitable[Refusal | None]]
    plan: StageFunction
    snapshot: StageFunction
    prepare: StageFunction
    validate: StageFunction
    commit: StageFunction
    take_back: Callable[[Run], None]
    fleet: Callable[[Run], FleetParts]
    remember_failed: Callable[[Run, str], None]
    spawn: Spawn
    scope: Callable[[], Awaitable[Sequence[str]]] = _no_scope
    tidy: Callable[[Run], None] = _nothing_left


def _validate(run: Run) -> AsyncGenerator[Event, None]:
    """The real one; a run with nothing new does not load it."""
    from nedura.update.validation.validate import validate

    return validate(run)


def _spawn(run: Run, request: CompletionRequest, folder: Path, log: Callable[[str], None]) -> Child:
    """The real one; a run with nothing to complete does not load it."""
    from nedura.update.completion.spawn import spawn

    return spawn(run, request, folder, log)


def default_parts() -> UpdateParts:
    """The real ones."""
    from nedura.update import real

    return UpdateParts(
        admit=real.admit,
        plan=real.plan,
        snapshot=real.snapshot,
        prepare=real.prepare,
        validate=_validate,
        commit=real.commit,
        take_back=real.take_back,
        fleet=real.fleet,
        remember_failed=real.remember_failed,
        spawn=_spawn,
        scope=real.scope,
        tidy=real.tidy,
    )
