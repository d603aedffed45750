"""Our own repository made again in the middle of a preparation: objects of it were broken, and everything in it can be had again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

from nedura.errors import NeduraError, UpdateError
from nedura.text import clean
from nedura.update.bounded import in_thread
from nedura.update.events import Notice
from nedura.update.generation.environment import discard
from nedura.update.source.repository import replace_repository, repository_aside
from nedura.wire import Event

if TYPE_CHECKING:
    from nedura.update.generation.prepare import Work

__all__ = ["on_whole_objects", "renewed"]

T = TypeVar("T")


def renewed(work: Work, error: UpdateError, fetch: Callable[[Work], T]) -> tuple[T, Notice]:
    """Fetch into a new repository; only when that works the damaged one is replaced: the broken objects may be the remote's. Blocks.

    Args:
        work: the preparation; its `git` is another one afterwards.
        error: what told of the damage.
        fetch: fetches with `work.git`.

    Returns:
        what was fetched, and what a person is told; also where the damaged one stays when parked work in it was unreadable.

    Raises:
        UpdateError: the fetch failed; `work.git` is as before.
        OSError: the disk refused.
    """
    damaged = work.git
    work.git = repository_aside(work.paths, work.source, work.run.environ)
    try:
        found = fetch(work)
    except BaseException:
        discard(work.git.repo)
        work.git = damaged
        raise
    work.git, kept = replace_repository(work.paths, work.git)
    text = f"Our repository was damaged and was made again: {error.message}"
    if kept is not None:
        text += f" Parked work in it could not be read; it stays in {clean(str(kept), 200)}."
    return found, Notice(text=text, warning=True)


async def on_whole_objects(
    work: Work, build: Callable[[Work], AsyncGenerator[Event, None]], fetch: Callable[[Work], object]
) -> AsyncGenerator[Event, None]:
    """`build`, and once more on a repository that is made again when it met broken objects: a fetch does not read what it has already.

    Args:
        work: the preparation.
        build: reads objects of the chosen version; it leaves nothing when it fails.
        fetch: as in `renewed`.

    Raises:
        UpdateError: as `build`. Where no new repository can be had, or it helps nothing, that is what is told.
    """
    broken: UpdateError | None = None
    notice: Notice | None = None
    while True:
        events = build(work)
        try:
            async for event in events:
                if (
                    notice is not None
                ):  # the second try came further, so the fault was ours and not the source's
                    yield notice
                    notice = None
                yield event
            return
        except UpdateError as error:
            if broken is not None or error.stop_class != "broken_objects":
                raise
            broken = error
        finally:
            await events.aclose()
        try:
            _, notice = await in_thread(renewed, work, broken, fetch)
        except NeduraError as error:
            raise broken from error
