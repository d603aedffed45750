"""The `fleet` commands and `gateway run`: formats what the logic layer collected."""

from __future__ import annotations

import argparse

from nedura.errors import StoreError
from nedura.fleet import FleetStatus, collect_now, explain_argv, explain_pid, judge
from nedura.homes import process_home, root_home
from nedura.installs import CodeIdentity, InstallPaths, find_installs, read_identity, running_code
from nedura_cli.output import Output

__all__ = ["expected_identity", "explain", "run", "status", "survey"]


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


def survey() -> FleetStatus:
    """Look at the fleet of the install that this command belongs to."""
    home = process_home()
    fleet = collect_now(root_home(home), extra_homes=(home,))
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
    """`nedura fleet explain`: one number is a pid, anything else a command line."""
    words: list[str] = args.what
    if len(words) == 1 and words[0].isdigit() and len(words[0]) < 12:
        found = explain_pid(int(words[0]))
    else:
        found = explain_argv(words)
    output.record(found.record())
    output.line(found.copy_terminal)
    return 0
