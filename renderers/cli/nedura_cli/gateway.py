"""The gateway as a service: `nedura gateway install | uninstall | start | stop | restart | status | list | migrate-legacy`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import attrs

from nedura.errors import RefusedError
from nedura.fleet import (
    MemberFailed,
    MemberRestarted,
    Runtime,
    ServiceNote,
    ServiceRow,
    attach_restarts,
    collect,
    homes_of,
    left_alone,
    list_services,
    restart_rest,
    restarts_under_way,
)
from nedura.fleet import gateway_services as services_of
from nedura.fleet.restart import RestartParts
from nedura.fleet.service.log_lines import newest_lines
from nedura.homes import process_home, profile_name, root_home
from nedura.wire import Event
from nedura_cli.fleet import expected_identity, gateways, own_gateway, survey
from nedura_cli.output import Output

__all__ = [
    "install", "list_all", "migrate_legacy", "restart", "restart_parts", "run_verb", "scope_of", "start", "status", "stop", "uninstall",
]  # fmt: skip

Scope = Literal["", "user", "system"]


def scope_of(args: argparse.Namespace) -> Scope:
    """The scope that a verb was told; empty for where the service is."""
    return "system" if args.system else ""


async def _show(stream: AsyncGenerator[Any, None], output: Output) -> list[Event]:
    seen = []
    async with aclosing(stream) as events:
        async for event in events:
            output.event(event)
            seen.append(event)
    return seen


def run_verb(
    stream: AsyncGenerator[Any, None], output: Output, nothing: str = "no gateway of this home is installed."
) -> int:
    """Show a verb's events, or why there is nothing to do. One service that failed, or a note instead of a change: exit 1."""
    seen = asyncio.run(_show(stream, output))
    if not seen:
        output.line(f"Nothing to do: {nothing}")
    notes = [event for event in seen if isinstance(event, ServiceNote)]
    return 1 if notes and (len(notes) == len(seen) or any(note.failed for note in notes)) else 0


def install(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway install`."""
    services = services_of(process_home(), run_as=args.run_as_user)
    stream = services.install(
        scope=scope_of(args),
        start=args.start_now,
        enable=args.start_on_login,
        run_as=args.run_as_user,
        force=args.force,
    )
    return run_verb(stream, output)


def uninstall(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway uninstall`."""
    return run_verb(services_of(process_home()).uninstall(scope=scope_of(args)), output)


def start(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway start`."""
    stream = services_of(process_home()).start(scope=scope_of(args), everyone=args.everyone)
    return run_verb(stream, output, "no gateway of this install is installed as a service.")


def stop(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway stop`."""
    stream = services_of(process_home()).stop(scope=scope_of(args), everyone=args.everyone)
    return run_verb(stream, output, "no gateway runs." if args.everyone else "no gateway of this home runs.")


def restart(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway restart`: drain, start, verify; what is installed and down is started. Exit 1 when a member is not verified."""
    return asyncio.run(_restart(args, output))


async def _restart(args: argparse.Namespace, output: Output) -> int:
    home = process_home()
    services = services_of(home)
    services.check()
    # whoever is down right now because somebody else restarts it is waited for, not started beside its successor
    busy = restarts_under_way(homes_of(root_home(home), home) if args.everyone else (home,))
    listing = await list_services()
    fleet = await collect(root_home(home), extra_homes=(home,), services=listing.services)
    for event in left_alone(fleet.foreign):
        output.event(event)
    if not args.everyone:
        _refuse_if_served(home, fleet.gateways)
    scope = scope_of(args)
    members = [
        one
        for one in fleet.runtimes
        if one.kind == "gateway"
        and (args.everyone or one.home == home)
        and (not scope or one.unit_scope == scope)
    ]
    parts = restart_parts()
    seen = await _show(restart_rest(members, expected_identity(), parts=parts, width=args.width), output)
    running = [one.home for one in fleet.gateways]
    down = [one for one in busy if one not in running]
    back = await _show(attach_restarts(down, expected_identity(), parts=parts), output) if down else []
    seen += back
    restarted = {one.profile for one in back if isinstance(one, MemberRestarted)}
    running += [one for one in down if profile_name(one) in restarted]
    seen += await _show(services.revive(scope=scope, everyone=args.everyone, skip=running), output)
    if not seen:
        what = "No gateway runs and none is installed."
        if members or running:
            what = "None of the gateways that run is the machine's service, and none is installed."
        output.line(f"{what} Run: nedura gateway install, or: nedura gateway run")
    failed = any(
        isinstance(event, MemberFailed) or (isinstance(event, ServiceNote) and event.failed) for event in seen
    )
    return 1 if failed or not seen else 0


def restart_parts() -> RestartParts:
    """Parts of an operator's restart: an update beside it may move the pointer, so what counts is asked anew each time."""
    from nedura.fleet.restart_parts import default_parts  # imports every supervisor

    return attrs.evolve(default_parts(), target=expected_identity)


def _refuse_if_served(home: Path, gateways: Sequence[Runtime]) -> None:
    """A profile without a gateway of its own, which another one's process serves: that one is restarted by its own name only.

    Raises:
        RefusedError: it is served so.
    """
    name = profile_name(home)
    server = next((one for one in gateways if name in one.served_profiles), None)
    if server is None or any(one.home == home for one in gateways):
        return
    raise RefusedError(
        f"Profile {name} is served by the gateway of profile {server.profile} (process {server.pid}).",
        advice=f"Run: nedura -p {server.profile} gateway restart",
    )


def status(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway status`: exit 0 always; looking is not failing."""
    rows = asyncio.run(_show(services_of(process_home()).status(scope=scope_of(args)), output))
    lines: tuple[str, ...] = ()
    if args.full:
        row = next((one for one in rows if isinstance(one, ServiceRow) and one.name), None)
        unit, scope = (row.name, row.scope) if row is not None else ("", "")
        lines = asyncio.run(newest_lines(process_home(), unit=unit, scope=scope))
    output.event(attrs.evolve(own_gateway(deep=args.deep), log=lines))
    if args.deep:
        output.event(survey())
    return 0


def list_all(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway list`."""
    del args
    asyncio.run(_show(services_of(process_home()).listing(), output))
    output.event(gateways())
    return 0


def migrate_legacy(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway migrate-legacy`."""
    asyncio.run(_show(services_of(process_home()).migrate_legacy(dry_run=args.dry_run), output))
    return 0
