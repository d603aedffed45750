"""`nedura auth ...`"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import attrs

from nedura.homes import process_home, root_home
from nedura.signin import (
    AlreadySignedIn,
    Challenge,
    FreeTier,
    auth_status,
    has_scope,
    list_logins,
    log_out,
    login_nous,
    run_sign_in,
    step_up_options,
    tools_options,
)
from nedura_cli.login import log_in, options_of, warn_of_trust
from nedura_cli.output import Output
from nedura_cli.sign_in_view import exit_code, show_sign_in

__all__ = ["add", "free_tier", "list", "logout", "status", "step_up", "upgrade"]


def upgrade(args: argparse.Namespace, output: Output) -> int:
    """Sign in with the plain device login."""
    warn_of_trust(output)
    home = process_home()
    state = show_sign_in(
        lambda cancelled: run_sign_in(home=home, timeout=args.timeout, cancelled=cancelled),
        output,
        browser=not args.no_browser,
        qr=args.qr,
    )
    if isinstance(state, AlreadySignedIn):  # a move of connected apps may still be due; at most 3 s
        for line in asyncio.run(auth_status(home)).handoff:
            output.line(line)
    return exit_code(state)


def add(args: argparse.Namespace, output: Output) -> int:
    """Add a login with every choice there is; `--for tools` asks for the right to use connected tools too."""
    options = options_of(args, "nedura auth add nous")
    if args.purpose == "tools":
        options = tools_options(options)
    code = log_in(args, output, options)
    if code == 0 and args.purpose == "tools" and not has_scope(process_home(), "tool:invoke"):
        output.remark("nedura: the service granted no right to use tools. The sign-in itself is kept.")
        return 1
    return code


def step_up(args: argparse.Namespace, output: Output) -> int:
    """Ask for one more right: exit 0 only when it was really granted."""
    home = process_home()
    if has_scope(home, args.scope):
        output.line(f"This login already has {args.scope}.")
        output.record({"kind": "step_up", "scope": args.scope, "granted": True})
        return 0
    options = step_up_options(home, args.scope)
    warn_of_trust(output)
    state = show_sign_in(
        lambda cancelled: login_nous(options, home=home, timeout=args.timeout, cancelled=cancelled),
        output,
        browser=not args.no_browser,
        qr=args.qr,
    )
    if not state.ok:
        return exit_code(state)
    granted = has_scope(home, args.scope)
    output.record({"kind": "step_up", "scope": args.scope, "granted": granted})
    output.line(f"{args.scope} was granted." if granted else f"The service did not grant {args.scope}.")
    return 0 if granted else 1


def free_tier(args: argparse.Namespace, output: Output) -> int:
    """Make or renew an identity without an account: exit 0 when there is one to work with."""

    def show(check: Challenge) -> None:
        output.remark(f"{check.message or 'A short check in the browser is needed.'} Open: {check.url}")

    state = asyncio.run(FreeTier(home=process_home(), show=show).provision(force=True))
    output.event(state)
    return 0 if state.ready else 1


def status(args: argparse.Namespace, output: Output) -> int:
    """Say who is signed in. Telling is the success, whatever there is to tell."""
    output.event(asyncio.run(auth_status(process_home())))
    return 0


def logout(args: argparse.Namespace, output: Output) -> int:
    """Sign out, and say where copies of the sign-in stay that still work."""
    home = process_home()
    output.event(asyncio.run(log_out(home, revoke=args.revoke)))
    if not args.revoke:
        _name_copies(home, output)
    return 0


def _name_copies(home: Path, output: Output) -> None:
    from nedura.update import sign_in_copies  # not for every other verb

    copies = sign_in_copies(home, root_home(home))
    if not copies:
        return
    output.record({"kind": "sign_in_copies", **attrs.asdict(copies)})
    named = [
        *(f"snapshot {name}" for name in copies.snapshots),
        *(f"backup {name}" for name in copies.backups),
    ]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    output.line(f"Copies of a sign-in may still work: {', '.join(named[:5])}{more}.")
    output.line("Delete them, or sign out with --revoke the next time: it ends the session at the portal.")


def list(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """List every stored login."""
    logins = list_logins(process_home(), now=time.time())
    if not logins:
        output.line("No login is stored. Sign in with: nedura auth upgrade")
    for login in logins:
        marks = [login.source, login.label, login.email, "" if login.usable else "needs a new sign-in"]
        output.line(f"{'*' if login.active else ' '} {login.provider}  " + "  ".join(filter(None, marks)))
        output.record({"kind": "login", **attrs.asdict(login)})
    return 0
