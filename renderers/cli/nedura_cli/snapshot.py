"""`nedura snapshot ...`, `nedura backup`, `nedura import`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import attrs

from nedura.errors import UsageError
from nedura.homes import process_home, profile_name, root_home
from nedura.profiles import list_profiles
from nedura.text import counted
from nedura.update import (
    IMPORT_LIMITS,
    LARGE,
    MANUAL_KEEP,
    MANUAL_LABEL,
    BackupFailed,
    Progress,
    SnapshotFailed,
    SnapshotTaken,
    import_backup,
    list_snapshots,
    restore_snapshot,
    size_text,
    take_backup,
    take_snapshots,
    verify_snapshot,
)
from nedura.wire import Event
from nedura_cli.output import Output

__all__ = ["backup", "bring", "create", "list", "restore", "verify"]


def _when(stamp: str) -> str:
    return datetime.strptime(stamp, "%Y%m%d-%H%M%S").replace(tzinfo=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def list(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Print the snapshots of the active profile, newest first."""
    home = process_home()
    found, unreadable = list_snapshots(home)
    output.record(
        {
            "kind": "snapshots",
            "profile": profile_name(home),
            "snapshots": [manifest.record() for manifest in reversed(found)],
            "unreadable": unreadable,
        }
    )
    rows: Sequence[Sequence[str]] = [
        (one.id, _when(one.timestamp), str(len(one.files)), size_text(one.total_size), ", ".join(one.missing))
        for one in reversed(found)
    ]
    if not rows:
        output.line("There are no snapshots of this profile yet.")
    if rows:
        output.table(("id", "taken", "files", "size", "missing"), rows)
    for name, reason in unreadable.items():
        output.remark(f"not usable: {name} ({reason})")
    return 0


async def _tell(events: AsyncGenerator[Event, None], output: Output) -> int:
    code = 0
    async with aclosing(events):
        async for event in events:
            output.event(event)
            if isinstance(event, (SnapshotFailed, BackupFailed)):
                code = 1
            elif isinstance(event, SnapshotTaken) and event.incomplete:
                code = 1  # a job that runs by itself must hear that a database is not in it (case C011)
            elif isinstance(event, Progress) and output.interactive:
                output.remark(f"  {event.label} {size_text(event.done)}")
    return code


def create(args: argparse.Namespace, output: Output) -> int:
    """Take a snapshot of the active profile, or of all; exit 1 when something of the set is not in it."""
    home = process_home()
    profiles = [(profile_name(home), home)]
    if args.all:
        profiles = [(profile.name, profile.home) for profile in list_profiles(root_home(home))]
    return _snapshot(profiles, output)


def _snapshot(profiles: Sequence[tuple[str, Path]], output: Output) -> int:
    return asyncio.run(
        _tell(take_snapshots(profiles, label=MANUAL_LABEL, keep=MANUAL_KEEP, cap=None), output)
    )


def restore(args: argparse.Namespace, output: Output) -> int:
    """Put a snapshot's files back."""
    home = process_home()
    output.event(
        restore_snapshot(
            home, args.id, profile=profile_name(home), now=time.time(), safety=not args.no_safety
        )
    )
    return 0


def verify(args: argparse.Namespace, output: Output) -> int:
    """Check one snapshot, or all of the profile; exit 1 when one is damaged."""
    home = process_home()
    known, unreadable = list_snapshots(home)
    asked = args.id is not None  # an empty one is none, and not all of them
    names = [args.id] if asked else [manifest.id for manifest in known]
    damaged = 0 if asked else len(unreadable)
    for name in names:
        manifest, wrong = verify_snapshot(home, name)
        damaged += bool(wrong)
        output.record(
            {
                "kind": "snapshot_verified",
                "id": name,
                "ok": not wrong,
                "damaged": wrong,
                "complete": manifest.complete,
            }
        )
        output.line(
            f"{'✗' if wrong else '✓'} {name}: {counted(len(manifest.files), 'file')}{_missing(manifest.missing)}"
        )
        for path, why in sorted(wrong.items()):
            output.line(f"  {path}: {why}")
    for name, reason in {} if asked else unreadable.items():
        output.record(
            {"kind": "snapshot_verified", "id": name, "ok": False, "damaged": {"manifest.json": reason}}
        )
        output.line(f"✗ {name}: {reason}")
    if not names and not damaged:
        output.line("There are no snapshots of this profile yet.")
    return 1 if damaged else 0


def _missing(names: tuple[str, ...]) -> str:
    return f", without {', '.join(names)}" if names else ""


def backup(args: argparse.Namespace, output: Output) -> int:
    """Make a full backup, or a quick snapshot."""
    home = process_home()
    if args.quick and args.output:
        raise UsageError(
            "A quick snapshot has its place in the profile's own home.",
            advice="Leave out --quick or --output.",
        )
    if args.quick:
        return _snapshot([(profile_name(home), home)], output)
    target = Path(args.output).absolute() if args.output else None
    return asyncio.run(_tell(take_backup(root_home(home), label="backup", keep=None, target=target), output))


def bring(args: argparse.Namespace, output: Output) -> int:
    """Bring a backup into the root home."""
    done = import_backup(
        Path(args.zip).absolute(),
        root_home(process_home()),
        now=time.time(),
        trust=args.trust,
        limits=LARGE if args.large else IMPORT_LIMITS,
    )
    output.record({"kind": "imported", **attrs.asdict(done)})
    output.line(f"✓ Imported {counted(len(done.files), 'file')}.")
    for where, name in sorted(done.safety.items()):
        output.line(f"  What was there before is in snapshot {name} of {where}.")
    for path, why in sorted(done.kept.items()):
        output.line(f"  {path}: {why}")
    if done.dropped:
        output.line(f"  Left out {len(done.dropped)}:")
    for path, why in sorted(done.dropped.items()):
        output.line(f"    {path} {why}")
    if any("trusts" in why or "credentials" in why for why in done.dropped.values()):
        output.line("  To take credentials and plugins too, say --trust.")
    return 0
