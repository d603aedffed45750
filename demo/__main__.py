"""`python -m demo [--json] [--keep]`: exit 0 only if every step held, 1 if one did not, 130 on Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.errors import DemoError
from demo.story import run_demo
from demo.views import choose
from nedura_cli.output import Output

__all__ = ["main"]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run demo", description="Install, sign in and update a live fleet in a temporary folder."
    )
    parser.add_argument("--json", action="store_true", help="one wire event a line, nothing else on stdout")
    parser.add_argument("--keep", action="store_true", help="keep the folder and print where it is")
    parser.add_argument("--plain", action="store_true", help="append-only lines")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser.parse_args(argv)


async def _run(args: argparse.Namespace, output: Output) -> int:
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    view = choose(output)
    try:
        finished = await run_demo(
            Path(__file__).resolve().parents[1], view.show, keep=args.keep, debug=args.debug
        )
    finally:
        view.close()
    return 0 if finished.ok else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    args = _arguments(argv)
    plain = args.plain or os.environ.get("ACCESSIBLE") == "1"
    output = Output(as_json=args.json, plain=plain, debug=args.debug)
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        return asyncio.run(_run(args, output))
    except DemoError as error:
        output.remark(f"demo: {error.diagnostics()}")
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.remark("demo: interrupted; everything it started was ended.")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
