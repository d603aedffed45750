"""What can be known to be wrong with a choice before anything is written: by the options alone, and by what lies here (read-only).

A typing error must not cost a snapshot, a receipt and a fetch before it is told.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from nedura.errors import UsageError
from nedura.product import Product
from nedura.text import clean
from nedura.update.ledger.receipts import ReceiptStore
from nedura.update.options import UpdateOptions
from nedura.update.run import Run
from nedura.update.source.channels import channel_key, check_channel, check_followed, successor

__all__ = [
    "branch_problem",
    "check_choices",
    "check_configured",
    "check_options",
    "check_run_id",
    "check_wheels",
]

BRANCH_LIMIT: Final = 250
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Of ASCII alone: it is a part of file names, whose length counts in bytes."""
_FORBIDDEN: Final = frozenset(" ~^:?*[\\\x7f")


def branch_problem(name: str) -> str:
    """Why a text is no name of a branch (the rules of git-check-ref-format), empty when it is one."""
    if not name.strip():
        return "--branch names no branch."
    parts = name.split("/")
    wrong = (
        len(name) > BRANCH_LIMIT or name.startswith("-") or name.endswith(".") or name == "@"
        or ".." in name or "@{" in name
        or any(ch in _FORBIDDEN or ch < " " for ch in name)
        or any(not part or part.startswith(".") or part.endswith(".lock") for part in parts)
    )  # fmt: skip
    return f"{clean(name, 80)!r} is no name of a branch." if wrong else ""


def check_run_id(wanted: str) -> str:
    """An id that a run and its files may have.

    Raises:
        UsageError: it cannot be one.
    """
    if not _RUN_ID.fullmatch(wanted):
        raise UsageError("A run id is 1 to 64 letters, digits, dots, dashes or underscores.")
    return wanted


def check_options(options: UpdateOptions, product: Product) -> None:
    """Refuse options that cannot be, whatever lies here.

    Raises:
        UsageError: one of them; nothing was written.
    """
    if options.with_backup and options.rollback is None:
        raise UsageError("--with-backup goes with --rollback.", advice="To take a backup: --backup")
    if options.deadline is not None and not 0 < options.deadline < float("inf"):
        raise UsageError("A deadline is a number of seconds above zero.")
    if options.branch is not None and (problem := branch_problem(options.branch)):
        raise UsageError(problem, advice="Leave --branch out to follow the usual one.")
    if options.channel is not None:
        check_channel(successor(options.channel, product.retired_channels))
    if options.rollback is not None and (options.branch is not None or options.channel is not None):
        raise UsageError(
            "--rollback goes to what ran before; --branch and --channel choose something new.",
            advice="Leave one of them out.",
        )
    check_wheels(options.wheels)


def check_wheels(folder: Path | None) -> None:
    """Refuse a folder of wheels that is not there, also when nothing of it would be needed this time.

    Raises:
        UsageError: it is not.
    """
    if folder is not None and not folder.is_dir():
        raise UsageError(
            f"{clean(str(folder), 200)} is no folder of wheels.",
            advice="Name one with --wheels DIR, or leave it out.",
        )


def check_choices(run: Run) -> None:
    """Refuse a choice that does not fit what is installed here. Read-only; blocks.

    Raises:
        UsageError: an unpacked release was told to follow a branch or channel, or there is no receipt to go back behind.
    """
    options = run.options
    if options.finish_only:
        return
    check_followed(run.layout, options.branch, options.channel)
    if options.rollback is not None:
        from nedura.update.generation.kept import find_receipt

        find_receipt(ReceiptStore(run.root_home), options.rollback)


def check_configured(run: Run, configured: str) -> None:
    """Refuse a channel that config.yaml names for this install and that does not exist.

    Args:
        run: the update.
        configured: what config.yaml says, empty for nothing.

    Raises:
        UsageError: there is no such channel.
    """
    options = run.options
    chosen = options.branch is not None or options.channel is not None or options.rollback is not None
    if not configured or chosen or options.finish_only or run.layout == "zip" or run.install is None:
        return
    try:
        check_channel(successor(configured, run.product.retired_channels))
    except UsageError as error:
        key = channel_key(run.install.install_id)
        raise UsageError(
            f"{key} in config.yaml: {error.message}", advice="nedura update --set-channel stable"
        ) from error
