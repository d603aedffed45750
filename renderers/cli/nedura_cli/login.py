"""The longer login, shared by `nedura model` and `nedura auth add nous`: an offer to take over, else the device login with its flags."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from nedura.errors import NeduraError, RefusedError
from nedura.homes import process_home
from nedura.signin import (
    AccountStore,
    Completed,
    Failed,
    LoginOptions,
    import_shared,
    login_nous,
    offer_shared,
)
from nedura.trust import resolve_trust
from nedura_cli.ask import ask_yes
from nedura_cli.output import Output
from nedura_cli.sign_in_view import exit_code, show_sign_in, take_over

__all__ = ["log_in", "options_of", "warn_of_trust"]


def options_of(args: argparse.Namespace, command: str) -> LoginOptions:
    """The flags as options; what is absent stays empty, so that the environment counts (#5745)."""
    return LoginOptions(
        portal_url=args.portal_url,
        inference_url=args.inference_url,
        client_id=args.client_id,
        oauth_scope=args.scope,
        insecure=True if args.insecure else None,
        ca_bundle=args.ca_bundle,
        label=getattr(args, "label", ""),
        priority=getattr(args, "priority", None),
        replace=True,
        command=command,
    )


def warn_of_trust(output: Output, ca_bundle: str = "") -> None:
    """Say on stderr when a named or remembered certificate file is not there and another choice takes its place."""
    try:
        tls = (AccountStore(process_home()).read().entry or {}).get("tls")
        kept = {"ca_bundle": tls.get("ca_bundle")} if isinstance(tls, Mapping) else None
        warning = resolve_trust(ca_bundle=ca_bundle or None, stored=kept).warning
    except NeduraError:
        return  # the login itself ends with it
    if warning:
        output.remark(f"nedura: {warning}")


def log_in(args: argparse.Namespace, output: Output, options: LoginOptions) -> int:
    """Run it and return the exit code: 0 signed in, 130 cancelled, 1 anything else."""
    if args.insecure and args.ca_bundle:
        raise RefusedError("--insecure and --ca-bundle exclude each other.")
    if args.insecure:
        output.remark("nedura: certificates are NOT checked for this login; every status will say so.")
    warn_of_trust(output, args.ca_bundle)
    home = process_home()
    if _may_import(args, options) and (taken := _import(args, output)) is not None:
        return exit_code(taken)
    state = show_sign_in(
        lambda cancelled: login_nous(options, home=home, timeout=args.timeout, cancelled=cancelled),
        output,
        browser=not args.no_browser,
        qr=args.qr,
    )
    return exit_code(state)


def _may_import(args: argparse.Namespace, options: LoginOptions) -> bool:
    """An explicit choice of portal, client, scope or trust asks for a login of its own."""
    chosen = (options.portal_url, options.client_id, options.oauth_scope, options.ca_bundle, options.insecure)
    return not args.no_import and not any(chosen)


def _import(args: argparse.Namespace, output: Output) -> Completed | None:
    offer = offer_shared(process_home())
    if offer is None:
        return None
    who = f" ({offer.email})" if offer.email else ""
    if not ask_yes(
        output,
        f"Another profile is signed in{who}, see {offer.path}. Use that account here?",
        assume=args.yes,
    ):
        return None
    state = asyncio.run(import_shared(process_home()))
    if isinstance(state, Failed):
        output.remark(f"nedura: {state.detail or state.copy} A new sign-in is started instead.")
        return None
    return take_over(state, output)
