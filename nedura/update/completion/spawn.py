"""The real completion child of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nedura.update.completion.child import Child, child_argv, child_environment
from nedura.update.completion.request import CompletionRequest
from nedura.update.run import Run

__all__ = ["spawn"]


def spawn(run: Run, request: CompletionRequest, folder: Path, log: Callable[[str], None]) -> Child:
    """A child on the new tree's bootstrap, not started yet.

    Args:
        run: the run.
        request: what it will be asked.
        folder: private folder of request, result and bytecode.
        log: takes its output.
    """
    tree = Path(request.source)
    argv = child_argv(
        tree / run.product.bootstrap,
        folder / "request.json",
        folder / "result.json",
        bytecode=folder / "bytecode",
    )
    return Child(
        argv,
        cwd=tree,
        environ=child_environment(run.environ, run.home, run.product),
        lock_fds=run.lock_fds,
        clock=run.clock,
        log=log,
    )
