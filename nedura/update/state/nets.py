"""The maintenance nets: per profile they put back what an update lost (facts/update.md 4.4). File-loss recovery, nothing more.

Each looks only at that profile's own snapshot of this run (the state database: at any of its snapshots).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

from nedura.clock import Clock, SystemClock
from nedura.config import edit_config, read_config, set_value
from nedura.errors import NeduraError, RecordMissing, StoreError
from nedura.records import read_json
from nedura.update.events_snapshot import NetRestored
from nedura.update.state.place import place_database, place_file, refuse_if_held
from nedura.update.state.restore import damages
from nedura.update.state.restore_rules import count_jobs, lost_settings
from nedura.update.state.snapshot_manifest import FOLDER, list_snapshots, read_manifest, snapshot_folder
from nedura.update.state.sqlite import DamagedDatabase, check_live

__all__ = ["NETS", "cron_net", "run_nets", "settings_net", "state_net"]

JOBS: Final = "cron/jobs.json"
MAX_JOBS: Final = 16 * 1024 * 1024


def cron_net(profile: str, home: Path, snapshot_id: str, now: float) -> NetRestored | None:
    """Put the cron jobs back when the live file is readable and has fewer than the snapshot (#34600, #52144)."""
    if not snapshot_id:
        return None
    copy = snapshot_folder(home, snapshot_id) / JOBS
    saved, live = _jobs(copy), _jobs(home / JOBS)
    if saved is None or live is None or live >= saved:
        return None
    place_file(copy, home / JOBS)
    detail = f"cron jobs were down to {live} of {saved}; restored from {snapshot_id}"
    return NetRestored(profile=profile, net="cron", ok=True, detail=detail)


def _jobs(path: Path) -> int | None:
    try:
        return count_jobs(read_json(path, MAX_JOBS))
    except StoreError:
        return None


def settings_net(profile: str, home: Path, snapshot_id: str, now: float) -> NetRestored | None:
    """Put guarded config keys back, one by one; everything else in the live file stays (#64160). A file that is gone comes back whole:
    with those keys alone it would look like one.
    """
    if not snapshot_id or not (snapshot_folder(home, snapshot_id) / "config.yaml").is_file():
        return None
    if not os.path.lexists(home / "config.yaml"):
        place_file(snapshot_folder(home, snapshot_id) / "config.yaml", home / "config.yaml")
        detail = f"config.yaml was gone; restored from {snapshot_id}"
        return NetRestored(profile=profile, net="config", ok=True, detail=detail)
    saved = read_config(snapshot_folder(home, snapshot_id)).data
    lost = lost_settings(saved, read_config(home).data)
    if not lost:
        return None

    def change(content: MutableMapping[str, Any]) -> None:
        for key, value in lost.items():
            set_value(content, key, value)

    edit_config(home, change)
    detail = f"config {', '.join(sorted(lost))} put back from {snapshot_id}"
    return NetRestored(profile=profile, net="config", ok=True, detail=detail)


def state_net(profile: str, home: Path, snapshot_id: str, now: float) -> NetRestored | None:
    """Check the state database; a damaged one is set aside byte for byte and replaced by the newest copy that passes.

    One that cannot be looked at (locked, no rights, a full disk) is told and left alone: its newest rows are nowhere else.
    """
    live = home / "state.db"
    if not live.exists():
        return None
    damage = _damage_of(live, home, snapshot_id)
    if not damage:
        return None
    refuse_if_held(live)
    for manifest in reversed(list_snapshots(home)[0]):
        folder = home / FOLDER / manifest.id
        if not manifest.files.get("state.db") or "state.db" in damages(folder, manifest):
            continue
        aside = place_database(folder / "state.db", live, now=now)
        kept = f"; the damaged file is kept as {aside.name}" if aside is not None else ""
        detail = f"{damage} Restored from {manifest.id}{kept}"
        return NetRestored(profile=profile, net="state_db", ok=True, detail=detail)
    return NetRestored(
        profile=profile, net="state_db", ok=False, detail=f"{damage} No snapshot has a whole copy"
    )


def _damage_of(live: Path, home: Path, snapshot_id: str) -> str:
    """What is wrong with the bytes of the state database; empty when nothing is.

    Raises:
        DatabaseError: that cannot be told.
    """
    try:
        check_live(live)
    except DamagedDatabase as error:
        return error.message
    if live.stat().st_size or not snapshot_id:
        return ""
    saved = read_manifest(snapshot_folder(home, snapshot_id)).files.get("state.db", 0)
    return "state.db is empty and was not when the update began." if saved else ""


Net = Callable[[str, Path, str, float], NetRestored | None]
NETS: Final[Mapping[str, Net]] = {"state_db": state_net, "cron": cron_net, "config": settings_net}
"""In the order they run."""


async def run_nets(
    profiles: Sequence[tuple[str, Path]], snapshots: Mapping[str, str], *, clock: Clock | None = None
) -> AsyncGenerator[NetRestored, None]:
    """Run every net for every profile and tell what had to be put back; silence means all was well.

    A net that cannot do its work is told with `ok=False` and never stops the others.

    Args:
        profiles: (name, home).
        snapshots: profile -> id of its own snapshot of this run.
        clock: time.
    """
    clock = SystemClock() if clock is None else clock
    for profile, home in profiles:
        for name, net in NETS.items():
            event = await asyncio.to_thread(
                _run, name, net, profile, home, snapshots.get(profile, ""), clock.time()
            )
            if event is not None:
                yield event


def _run(name: str, net: Net, profile: str, home: Path, snapshot_id: str, now: float) -> NetRestored | None:
    try:
        return net(profile, home, snapshot_id, now)
    except RecordMissing:
        return None
    except NeduraError as error:
        return NetRestored(profile=profile, net=name, ok=False, detail=error.diagnostics())
    except OSError as error:  # border: one home's file system must not end the nets of the others
        return NetRestored(profile=profile, net=name, ok=False, detail=error.strerror or type(error).__name__)
