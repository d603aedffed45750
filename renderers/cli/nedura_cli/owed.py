"""What the status bar says about an update that is not finished. Reads a few files, asks nobody, never fails."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nedura.errors import NeduraError
from nedura.product import NEDURA
from nedura.update import Launch, ReceiptStore
from nedura.update.ledger.obligations import RestartObligation, TailObligation, restart_folder

__all__ = ["owed_now"]


def owed_now(root: Path, environ: Mapping[str, str] | None = None) -> str:
    """`restart owed`, `update unfinished` or nothing.

    Args:
        root: the root home.
        environ: default the process's own.
    """
    environ = os.environ if environ is None else environ
    launch = Launch.here(lambda _: None, environ)
    if launch is not None and launch.root_home == root:
        if RestartObligation(restart_folder(environ, NEDURA), launch.shared, root).read() is not None:
            return "restart owed"
        return "update unfinished" if TailObligation(launch.install.folder).is_armed() else ""
    try:  # code of no install knows no obligations; elsewhere a receipt of the past proves nothing
        newest = ReceiptStore(root).newest() or {}
    except NeduraError:
        return ""
    return "update unfinished" if newest.get("followups") else ""
