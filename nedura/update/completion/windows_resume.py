"""Starting again what was paused before the swap on Windows: the token is data, whoever can start things is a seam (facts/update.md 5.7).

The token is on disk before the first start, and what could not be started stays there for the next run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from nedura.errors import NeduraError, RecordMissing, UpdateError
from nedura.fleet.supervisors.windows import PauseToken, ResumeStep, after_resume, resume_steps
from nedura.product import Product
from nedura.records import make_folder, read_json, remove, write_json
from nedura.text import clean

__all__ = ["NoStarter", "Starter", "pending_token", "resume"]

PENDING: Final = "windows-resume.json"


class Starter(Protocol):
    """What starts services and gateways of a Windows host."""

    async def running(self) -> Collection[str]:
        """Profiles whose gateway runs."""
        ...

    async def autostart(self) -> bool:
        """Whether a task or Startup entry of ours is installed."""
        ...

    async def start(self, step: ResumeStep) -> None:
        """Carry out one step.

        Raises:
            NeduraError, OSError: it could not be started.
        """
        ...


class NoStarter:
    """A host on which nothing of Windows can be started: every step fails with that reason."""

    async def running(self) -> Collection[str]:
        """Nothing that we could know of."""
        return ()

    async def autostart(self) -> bool:
        """There is none."""
        return False

    async def start(self, step: ResumeStep) -> None:
        """Refuse.

        Raises:
            UpdateError: always.
        """
        raise UpdateError("this host cannot start services of Windows", stop_class="windows_resume")


def pending_token(state: Path, given: Mapping[str, Any] | None) -> PauseToken | None:
    """What is to be resumed: the request's token, else what an earlier run left.

    Raises:
        StoreError: the record of an earlier run cannot be read.
    """
    if given is not None:
        return PauseToken.parse(given)
    try:
        return PauseToken.parse(read_json(state / PENDING))
    except RecordMissing:
        return None


async def resume(
    token: PauseToken, state: Path, starter: Starter, product: Product
) -> tuple[PauseToken, str]:
    """Start each thing once.

    Args:
        token: what was paused.
        state: the install's state folder.
        starter: who starts.
        product: names.

    Returns:
        the token as it stands then, and what is still owed, empty for nothing.

    Raises:
        StoreError: what is owed cannot be recorded.
    """
    make_folder(state)
    write_json(state / PENDING, token.wire())
    steps, lost = resume_steps(
        token, running=await starter.running(), autostart=await starter.autostart(), product=product
    )
    done, failed = [], [f"{name} cannot be told apart" for name in lost]
    for step in steps:
        try:
            await starter.start(step)
            done.append(step)
        except (NeduraError, OSError) as error:
            why = error.message if isinstance(error, NeduraError) else error.strerror
            failed.append(f"{clean(step.name, 80) or 'the installed task'}: {clean(why)}")
    left = after_resume(token, done)
    if failed:
        write_json(state / PENDING, left.wire())
    else:
        remove(state / PENDING)
    return left, "; ".join(failed)
