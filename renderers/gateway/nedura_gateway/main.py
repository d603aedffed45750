"""Entry point of the gateway: `nedura-gateway`, `python -m nedura_gateway`, and what `nedura gateway run` calls."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nedura.streams import ReaderGone, StandardStreams, mend_streams, outlive_reader

if TYPE_CHECKING:
    import argparse

__all__ = ["main", "run_from"]

EXIT_TORN = 1
EXIT_UNPINNED = 69
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Parse as `nedura gateway run` does and run; returns the exit code, 130 when it was interrupted before it served.

    A stream that is closed or full costs its lines, never the gateway, and no socket of it becomes a standard stream.
    """
    streams = mend_streams()
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:  # argparse has printed the help
        return _told(streams, int(end.code or 0))
    except KeyboardInterrupt:
        sys.stderr.write("\nnedura-gateway: interrupted.\n")
        return EXIT_INTERRUPTED


def _told(streams: StandardStreams, code: int) -> int:
    """The exit code after an answer on stdout, as the command's: a lost one is said, but not that a pipe's reader had enough."""
    try:
        problem = streams.problem()
    except ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_READER_GONE
    if problem:
        sys.stderr.write(f"nedura-gateway: the output could not be written: {problem}.\n")
        return code or 1
    return code


def _main(argv: Sequence[str]) -> int:
    if reason := _torn():
        sys.stderr.write(f"nedura-gateway: {reason}\n")
        return EXIT_TORN
    from nedura.pinned import pinned

    if reason := pinned():
        sys.stderr.write(f"nedura-gateway: {reason}\n")
        return EXIT_UNPINNED
    from nedura.commands import build_parser, own_flags, subparser
    from nedura.errors import NeduraError
    from nedura.profile_flag import select

    try:
        selection = select(["gateway", "run", *argv], os.environ, own_flags)
        parser = build_parser("nedura-gateway")
        group = subparser(parser, "gateway")
        run_parser = subparser(group, "run") if group is not None else None
        assert run_parser is not None
        run_parser.prog = parser.prog  # the two words are ours, not the caller's
        args = parser.parse_args(selection.argv)
    except NeduraError as error:
        sys.stderr.write(f"nedura-gateway: {error.diagnostics()}\n")
        return error.exit_code
    os.environ["NEDURA_HOME"] = str(selection.home)
    outlive_reader()
    return run_from(args)


def _torn() -> str:
    """A checkout that a killed update left half moved is mended first; the process then starts again on whole files."""
    from nedura.whole import mend_own_tree

    changed, reason = mend_own_tree()
    if changed:
        os.execv(sys.executable, sys.orig_argv)
    return reason


def _end_with_parent() -> None:
    """A probe belongs to the update that boots it: when that is killed, the probe ends too and its generation is free again.

    The updater says who it is: by now it may be gone, and our parent somebody else.
    """
    import threading
    import time

    told = os.environ.get("NEDURA_PROBE_PARENT", "")
    parent = int(told) if told.isdigit() else os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, name="probe-parent", daemon=True).start()


def run_from(args: argparse.Namespace) -> int:
    """Run with the parsed flags of `gateway run`."""
    from nedura_gateway.app import GatewayOptions, run
    from nedura_gateway.logs import set_up_logging

    set_up_logging(verbose=bool(args.verbose))
    # turns that compute must not keep the control socket's thread waiting, which asks for the GIL several times
    sys.setswitchinterval(0.001)
    supervised = bool(args.external_supervisor or os.environ.get("NEDURA_SUPERVISED_CHILD"))
    options = GatewayOptions(
        handler=args.answer,
        replace=args.replace,
        force=args.force,
        supervised=supervised,
        probe=os.environ.get("NEDURA_PROBE") == "1",
    )
    if options.probe:
        _end_with_parent()
    try:
        return run(options)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # the exit code is settled


if __name__ == "__main__":
    raise SystemExit(main())
