"""`nedura auth ...`"""

from __future__ import annotations

import argparse
import asyncio
import time

import attrs

from nedura.homes import process_home
from nedura.signin import auth_status, list_logins, log_out, run_sign_in
from nedura_cli.output import Output
from nedura_cli.sign_in_view import exit_code, show_sign_in

__all__ = ["list", "logout", "status", "upgrade"]


def upgrade(args: argparse.Namespace, output: Output) -> int:
    """Sign in with the plain device login."""
    home = process_home()
    state = show_sign_in(
        lambda cancelled: run_sign_in(home=home, timeout=args.timeout, cancelled=cancelled),
        output,
        browser=not args.no_browser,
        qr=args.qr,
    )
    return exit_code(state)


def status(args: argparse.Namespace, output: Output) -> int:
    """Say who is signed in. Telling is the success, whatever there is to tell."""
    output.event(asyncio.run(auth_status(process_home())))
    return 0


def logout(args: argparse.Namespace, output: Output) -> int:
    """Sign out."""
    output.event(asyncio.run(log_out(process_home(), revoke=args.revoke)))
    return 0


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
