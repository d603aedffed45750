"""The rehearsal: the candidate opens copies of every profile's configuration and of the smallest profile's stores (decision 33).

What the running version cannot open either is no fault of the candidate, and is left to whoever broke it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nedura.config import CONFIG_FILE
from nedura.errors import NeduraError, UpdateError
from nedura.installs import InstallPaths
from nedura.records import make_folder, write_bytes
from nedura.text import clean, counted
from nedura.update.bounded import run_bounded
from nedura.update.generation.environment import discard
from nedura.update.run import Candidate
from nedura.update.validation.probe_state import blanked_config, copy_state, smallest
from nedura.update.validation.rehearse import rehearse
from nedura.update.validation.verdict import CHECK_KILLED, killed_by

__all__ = ["run_rehearsal"]

TIMEOUT: Final = 120.0
MODULE: Final = "nedura.update.validation.rehearse"


def run_rehearsal(
    paths: InstallPaths, candidate: Candidate, profiles: Sequence[tuple[str, Path]], environ: dict[str, str]
) -> str:
    """Let the candidate open copied state. Blocks.

    Args:
        paths: the install.
        candidate: what would become current.
        profiles: profiles and their homes; only read.
        environ: the child's whole environment.

    Returns:
        what was rehearsed, for the receipt.

    Raises:
        UpdateError: the candidate cannot open what the running version can.
    """
    if not (candidate.tree / "nedura/update/validation/rehearse.py").is_file():
        return "this version has nothing to rehearse"
    folder = paths.folder / f".tmp.rehearsal.{secrets.token_hex(4)}"
    try:
        homes, note = _copies(folder, profiles)
        usable = {str(home): name for home, name in homes.items() if not rehearse(home)}
        if usable:
            _ask(candidate, usable, environ)
    finally:
        discard(folder)
    skipped = len(homes) - len(usable)
    many = counted(len(usable), "home")
    return many + note + (f", {skipped} that this version cannot open either" if skipped else "")


def _copies(folder: Path, profiles: Sequence[tuple[str, Path]]) -> tuple[dict[Path, str], str]:
    """Copies of what is rehearsed (copy -> profile's name), and what to note of state that was too large for one."""
    least = smallest(profiles)
    found: dict[Path, str] = {}
    note = ""
    make_folder(folder)
    for number, (name, home) in enumerate(profiles):
        copy = folder / str(number)
        try:
            if least is not None and home == least[1]:
                note = copy_state(home, copy).note
            else:
                make_folder(copy)
                if (home / CONFIG_FILE).is_file():
                    write_bytes(copy / CONFIG_FILE, blanked_config(home))
        except (NeduraError, OSError) as error:
            raise UpdateError(
                f"The state of profile {clean(name)} cannot be copied: {clean(error)}", stop_class="rehearsal"
            ) from error
        found[copy] = name
    return found, note


def _ask(candidate: Candidate, homes: dict[str, str], environ: dict[str, str]) -> None:
    done = run_bounded(
        [str(candidate.python), "-I", "-B", "-X", "utf8", "-m", MODULE, *homes],
        env=environ,
        timeout=TIMEOUT,
        sweep=True,
    )
    try:
        answer = json.loads(done.out)
        failed = {homes[home]: str(why) for home, why in answer.items() if why}
    except (ValueError, AttributeError, KeyError) as error:
        lines = done.err.decode("utf-8", "replace").strip().splitlines()
        raise UpdateError(
            f"The rehearsal of the new version gave no answer: {clean(lines[-1]) if lines else done.code}",
            stop_class=CHECK_KILLED if killed_by(done) else "rehearsal",
        ) from error
    if failed:
        name, why = next(iter(sorted(failed.items())))
        raise UpdateError(
            f"The new version cannot open the state of profile {clean(name)}: {clean(why, 300)}",
            stop_class="rehearsal",
            advice="Nothing was changed.",
        )
