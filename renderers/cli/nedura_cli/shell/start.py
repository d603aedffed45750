"""`nedura` without a command: the shell, one message (`-z`), or help where nobody can type."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

from nedura.errors import RefusedError, StoreError, UsageError
from nedura.homes import process_home
from nedura.text import clean
from nedura_cli.look import find_look
from nedura_cli.output import Output
from nedura_cli.shell.alive import Alive
from nedura_cli.shell.saved import load
from nedura_cli.shell.session import Session
from nedura_cli.shell.talk import Conversation, Turn

__all__ = ["open_session", "shell"]

PROVIDERS: Final = ("nous",)
EFFORTS: Final = ("minimal", "low", "medium", "high")


def open_session(args: argparse.Namespace, output: Output) -> Session:
    """The session that the options ask for.

    Raises:
        UsageError: an option names something that there is not.
    """
    if args.provider and args.provider not in PROVIDERS:
        raise UsageError(f"There is no provider {clean(args.provider, 40)!r}.", advice="There is: nous")
    if args.reasoning and args.reasoning not in EFFORTS:
        raise UsageError(f"--reasoning takes {', '.join(EFFORTS)}.")
    home = process_home()
    name, talk = ("", Conversation()) if args.resume is None else load(home, args.resume)
    look = find_look(output.stdout, home, plain=output.plain)
    return Session(home, look, model=args.model or "", reasoning=args.reasoning or "", talk=talk, name=name)


def shell(args: argparse.Namespace, output: Output) -> int:
    """Run the shell that fits, or send the one message."""
    session = open_session(args, output)
    try:
        if args.oneshot is not None:
            return asyncio.run(_once(session, args.oneshot, output))
        if not sys.stdin.isatty():
            raise RefusedError(
                "There is no terminal to type in.", advice="Send one message with: nedura -z TEXT"
            )
        alive = Alive(session.home)
        session.moved = alive.follow
        try:
            return _interactive(session, output)
        finally:
            alive.end()
    finally:
        _keep(session, output)


def _interactive(session: Session, output: Output) -> int:
    if not session.look.terminal.redraws:
        from nedura_cli.shell.plain import PlainShell

        return PlainShell(session, output).run()
    from nedura_cli.shell.app import Shell

    return asyncio.run(Shell(session).run())


def _keep(session: Session, output: Output) -> None:
    try:
        session.keep()
    except StoreError as error:
        output.remark(f"nedura: this conversation was not kept: {error.message}")


async def _once(session: Session, text: str, output: Output) -> int:
    """One message, its answer on stdout as it comes, tools on stderr."""
    look = session.look
    turn = Turn(look, output.line, output.remark, lambda: None)
    try:
        whole = await turn.run(
            session.stream, session.home, session.talk.asked(text), **session.route_options()
        )
    finally:
        turn.cut()  # what came before an error is the person's too
    session.talk.answered(text, whole)
    output.record({"kind": "answer", "text": whole})
    return 0
