"""`nedura update` and `nedura logs update`: every line comes from the events and receipts themselves."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from nedura import update as run_update
from nedura.errors import NeduraError
from nedura.homes import process_home, root_home
from nedura.text import clean, utc_text
from nedura.update import ReceiptStore, UpdateFinished, UpdateOptions, action_marker, interruption, status_of
from nedura.update.exit_code import tell_chat
from nedura_cli.ask import can_ask
from nedura_cli.output import Output
from nedura_cli.update_ask import asker
from nedura_cli.update_plain import UpdateView, choose_view

__all__ = ["logs", "update"]


def options_of(args: argparse.Namespace) -> UpdateOptions:
    """What the command line asks for."""
    return UpdateOptions(
        backup=args.backup,
        no_backup=args.no_backup,
        yes=args.yes,
        keep_stash=args.keep_stash,
        branch=args.branch,
        switch_branch=args.switch_branch,
        channel=args.channel,
        no_gateway_restart=args.no_gateway_restart,
        gateway_mode=args.gateway,
        strict=args.strict,
        run_id=args.run_id,
        retry=args.retry,
        allow_downgrade=args.allow_downgrade,
        probe=not args.no_probe,
        wheels=args.wheels,
        rollback=args.rollback,
        with_backup=args.with_backup,
        deadline=args.deadline,
        finish_only=args.finish_owed or args.post_swap is not None,
    )


def update(args: argparse.Namespace, output: Output) -> int:
    """Run an update."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal must not stop an update half-way
    try:
        finished = asyncio.run(
            _run(options_of(args), output, ask=can_ask(output, assume=args.yes or args.gateway))
        )
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _interrupted(output)
    except (
        Exception
    ) as error:  # no run, so no last event: whoever waits for the end of it must hear of it all the same
        code = error.exit_code if isinstance(error, NeduraError) else 1
        if args.gateway:
            tell_chat(process_home(), 1)
        _mark(False, code, output)
        raise
    return _close(finished, output)


async def _run(options: UpdateOptions, output: Output, *, ask: bool) -> UpdateFinished:
    task = asyncio.current_task()
    assert task is not None
    _stop_once(task)
    finished: UpdateFinished | None = None
    view = choose_view(output)
    ticker = asyncio.create_task(_tick(view))
    try:
        asking = asker(view, output) if ask else None
        async with aclosing(run_update(options=options, ask=asking)) as events:
            async for event in events:
                view.show(event)
                if isinstance(event, UpdateFinished):
                    finished = event
                    _go_deaf()
    finally:
        ticker.cancel()
        view.close()
    assert finished is not None, "an update always ends with UpdateFinished"
    return finished


def _stop_once(task: asyncio.Task[object]) -> None:
    """Ctrl-C and SIGTERM stop the run once: what an impatient second one would interrupt is the end of the child and of the receipt."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop)


def _go_deaf() -> None:
    """The run has said how it ended: what is left is to tidy up and to end, with the exit code that it named."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # else the loop's end would bring the default back
        signal.signal(number, signal.SIG_IGN)


async def _tick(view: UpdateView) -> None:
    """Let the view speak up when nothing happens."""
    while True:
        await asyncio.sleep(0.25)
        view.tick()


def _close(finished: UpdateFinished, output: Output) -> int:
    if finished.exit_code and finished.receipt and not output.as_json:
        output.remark(f"Receipt: {finished.receipt}")
    _mark(finished.outcome == "success", finished.exit_code, output)
    return finished.exit_code


def _mark(success: bool, exit_code: int, output: Output) -> None:
    """The terminal marker line of a dashboard action (facts/update.md 1.3)."""
    line = action_marker(os.environ, success=success, exit_code=exit_code)
    if line and output.as_json:
        output.remark(line)
    elif line:
        output.line(line)


def _interrupted(output: Output) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends now, and with its own exit code
    event = interruption(ReceiptStore(root_home(process_home())))
    output.event(event)
    if event.receipt and not output.as_json:
        output.remark(f"Receipt: {event.receipt}")
    _mark(event.outcome == "success", event.exit_code, output)
    return event.exit_code


def logs(args: argparse.Namespace, output: Output) -> int:
    """Print the newest receipts."""
    receipts = ReceiptStore(root_home(process_home())).recent(args.last)
    for receipt in receipts:
        output.record(as_it_stands(receipt))
        for line in receipt_lines(receipt):
            output.line(line)
    if not receipts:
        output.line("No update has run here yet.")
    return 0


def as_it_stands(receipt: Mapping[str, Any]) -> Mapping[str, Any]:
    """A receipt for programs: one whose processes are gone does not say `running`, here as little as to people."""
    status = status_of(receipt)
    if status.outcome == str(receipt.get("outcome", "running")):
        return receipt
    return {**receipt, "outcome": status.outcome, "stop_reason": status.stop_reason}


def receipt_lines(receipt: Mapping[str, Any]) -> list[str]:
    """A receipt as people read it. What a later version or a damaged file made of a field is shown as text or left out.

    A run that still says `running` while its processes are gone is shown as interrupted, as the next update will close it.
    """
    status = status_of(receipt)
    code = _fields(receipt.get("post_update")) or _fields(receipt.get("pre_update"))
    version = (
        f"{clean(code.get('version'))} ({clean(code.get('short_sha'), 40)})" if code else "unknown version"
    )
    stage = f" (in stage {clean(status.stage)})" if status.outcome == "running" and status.stage else ""
    lines = [
        f"{utc_text(status.started_at)}  {clean(status.outcome) or '?':<11} {version}  {clean(status.run_id)[:8]}{stage}"
    ]
    if status.stop_reason:
        lines.append(f"    {clean(status.stop_reason, 2000)}")
    lines.extend(
        f"    owed: {clean(row.get('step'))}: {clean(row.get('reason'), 500)}"
        for row in _rows(receipt.get("followups"))
    )
    if behind := clean(receipt.get("went_behind"), 64):
        restored = clean(receipt.get("restored"), 500)
        state = f"state restored: {restored}" if restored else "state stays as it is"
        lines.append(f"    went back behind run {behind[:8]}; {state}")
    action = _fields(receipt.get("user_action"))
    if action:
        lines.append(f"    yours: {clean(action.get('step'))}: {clean(action.get('reason'), 500)}")
    lines.extend(
        f"    {clean(row.get('profile'))}: back after {clean(row.get('downtime_ms', 0))} ms"
        for row in _rows(_fields(receipt.get("gateway_restart")).get("restarted"))
    )
    return lines


def _fields(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []
