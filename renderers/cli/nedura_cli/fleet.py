"""The `fleet` commands and `gateway run`: formats what the logic layer collected."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from nedura.errors import StoreError
from nedura.fleet import (
    Fleet,
    FleetStatus,
    GatewayList,
    GatewayListRow,
    GatewayStatus,
    MatrixRow,
    Runtime,
    ask_now,
    collect,
    explain_argv,
    explain_pid,
    find_socket,
    judge,
    last_exit,
    list_services,
)
from nedura.homes import process_home, profile_name, root_home
from nedura.installs import CodeIdentity, InstallPaths, find_installs, read_identity, running_code
from nedura.text import clean
from nedura_cli.output import Output

__all__ = ["expected_identity", "explain", "gateways", "own_gateway", "run", "status", "survey"]


def run(args: argparse.Namespace, output: Output) -> int:
    """`nedura gateway run`: become the gateway."""
    del output
    from nedura_gateway.main import run_from

    return run_from(args)


def expected_identity() -> CodeIdentity:
    """What a member started now would run: the pointer of this sealed install, else the running code's checkout."""
    running = running_code()
    for paths in find_installs(root_home(process_home())):
        if paths.install_id == running.install_id:
            return _pointed(paths) or running
    return running


def _pointed(paths: InstallPaths) -> CodeIdentity | None:
    try:
        generation = paths.pointed()
        return read_identity(generation) if generation is not None else None
    except StoreError:
        return None


def look_around(*, scan: bool = True) -> Fleet:
    """Collect the fleet of the install that this command belongs to."""
    home = process_home()
    return asyncio.run(_collect(root_home(home), home, scan=scan))


async def _collect(root: Path, home: Path, *, scan: bool) -> Fleet:
    listing = await list_services()
    fleet = await collect(root, extra_homes=(home,), scan=scan, services=listing.services)
    return attrs.evolve(fleet, probes=(*fleet.probes, *listing.probes))


def survey() -> FleetStatus:
    """Look at the fleet and judge it against what a start now would run."""
    fleet = look_around()
    expected = expected_identity()
    return FleetStatus(
        expected=expected,
        rows=judge(expected, fleet, before=fleet.gone),
        runtimes=fleet.runtimes,
        foreign=fleet.foreign,
        homes=fleet.homes,
        probes=fleet.probes,
    )


def status(args: argparse.Namespace, output: Output) -> int:
    """`nedura fleet status`: the version matrix. Exit 0 always: looking is not failing."""
    del args
    output.event(survey())
    return 0


def explain(args: argparse.Namespace, output: Output) -> int:
    """`nedura fleet explain`: one number is a pid, anything else a command line; behind `--` everything is one."""
    words: list[str] = args.what if args.argv is None else args.argv
    number = words[0] if args.argv is None and len(words) == 1 else ""
    if number.isascii() and number.isdigit() and len(number) < 12:
        found = explain_pid(int(number))
    else:
        found = explain_argv(words)
    output.record(found.record())
    output.line(found.copy_terminal)
    return 0


def gateways() -> GatewayList:
    """Every profile of the install with its gateway, for `gateway list`."""
    fleet = look_around()
    rows = judge(expected_identity(), fleet, before=fleet.gone)
    return GatewayList(rows=tuple(list_rows(fleet, rows)), foreign=fleet.foreign)


def list_rows(fleet: Fleet, rows: Sequence[MatrixRow]) -> Iterator[GatewayListRow]:
    """One row per home of the install, in the order of the homes."""
    root = fleet.homes[0] if fleet.homes else process_home()
    for home in fleet.homes:
        profile = profile_name(home, root_home(root))
        runtime = next((item for item in fleet.gateways if item.home == home), None)
        server = next((item for item in fleet.gateways if profile in item.served_profiles), None)
        row = next((item for item in rows if item.home == home and item.kind == "gateway"), None)
        yield GatewayListRow(
            profile=profile,
            home=home,
            running=runtime is not None or server is not None,
            row=row,
            state=runtime.state if runtime else "",
            supervisor=runtime.supervisor if runtime else "",
            unit=runtime.unit if runtime else "",
            served_by=server.profile if runtime is None and server is not None else "",
        )


def own_gateway(*, deep: bool = False) -> GatewayStatus:
    """This profile's gateway as it answers itself, for `gateway status`.

    Args:
        deep: show the socket, what runs, and what was probed.
    """
    home = process_home()
    fleet = look_around(scan=deep)
    rows = judge(expected_identity(), fleet, before=fleet.gone)
    profile = profile_name(home, root_home(home))
    runtime = next(
        (item for item in fleet.gateways if item.home == home or profile in item.served_profiles), None
    )
    row = next((item for item in rows if runtime is not None and item.pid == runtime.pid), None)
    path, answer_ms = time_answer(runtime.home if runtime else home)
    gone = next((item for item in fleet.gone if item.home == home), None)
    return GatewayStatus(
        profile=profile,
        home=home,
        running=runtime is not None,
        row=row,
        runtime=runtime,
        socket=path,
        answer_ms=answer_ms,
        last_exit=last_words(gone) if gone else last_exit(home),
        deep=deep,
        probes=fleet.probes,
    )


def last_words(gone: Runtime) -> str:
    """How a gateway ended that did not shut down: what it could still write, else that it could not."""
    reason = clean(gone.detail.get("exit_reason"), 200)
    return f"process {gone.pid}: {reason}" if reason else f"process {gone.pid} died without a word"


def time_answer(home: Path) -> tuple[Path | None, float | None]:
    """A home's control socket and the milliseconds it takes to answer."""
    start = time.perf_counter()
    answer = ask_now(home, "identify")
    spent = (time.perf_counter() - start) * 1000
    return find_socket(home, "gateway", os.environ), spent if answer is not None else None
