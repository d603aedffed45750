"""Grammar of the `auth` commands and of `nedura model`, the longer login with a choice of model."""

from __future__ import annotations

import argparse
from typing import Any

from nedura.errors import UsageError

_HANDLERS = "nedura_cli.auth"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 600:
        raise UsageError("--timeout takes 1 to 600 seconds.")
    return value


def _flow_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-browser", action="store_true", help="never open a browser; link and code are shown"
    )
    parser.add_argument("--qr", action="store_true", help="also show the link as a QR code")
    parser.add_argument(
        "--timeout", type=_seconds, default=15.0, metavar="SECONDS", help="longest wait for one answer (15)"
    )
    _json(parser)


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one event a line, for programs")


def _login_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--portal-url", default="", metavar="URL", help="portal to sign in at")
    parser.add_argument("--inference-url", default="", metavar="URL", help="model address to use")
    parser.add_argument("--client-id", default="", metavar="ID", help="OAuth client")
    parser.add_argument("--scope", default="", help="OAuth scope to ask for")
    parser.add_argument(
        "--ca-bundle", default="", metavar="FILE", help="CA certificates to believe, PEM; remembered"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="do NOT check certificates; remembered, shown on every status"
    )
    parser.add_argument("--no-import", action="store_true", help="do not offer another profile's sign-in")
    parser.add_argument("-y", "--yes", action="store_true", help="answer every question with its default")
    _flow_flags(parser)


def _provider(parser: argparse.ArgumentParser, nargs: str | None = "?") -> None:
    parser.add_argument("provider", nargs=nargs, choices=("nous",), default="nous", help="nous")


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    _add_auth(commands)
    _add_model(commands)


def _add_model(commands: argparse._SubParsersAction[Any]) -> None:
    text = "sign in if needed, then choose the default model"
    model = commands.add_parser("model", help=text, description=text)
    model.add_argument("id", nargs="?", default="", help="set this model without asking")
    model.add_argument("--login", action="store_true", help="sign in again, also over an account")
    _login_flags(model)
    model.set_defaults(handler="nedura_cli.model:model")


def _add_auth(commands: argparse._SubParsersAction[Any]) -> None:
    auth = commands.add_parser("auth", help="sign in, sign out, and see who is signed in")
    verbs = auth.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.set_defaults(handler=f"{_HANDLERS}:{name.replace('-', '_')}")
        return parser

    _flow_flags(verb("upgrade", "sign in to the Nous Portal with your account"))
    _json(verb("free-tier", "start without an account, where the free tier is switched on"))
    status = verb("status", "say who is signed in")
    _provider(status)
    _json(status)
    _json(verb("list", "list every stored login, without its secrets"))
    logout = verb("logout", "sign this profile out")
    _provider(logout)
    logout.add_argument(
        "--revoke", action="store_true", help="also end the session at the portal, for every profile on it"
    )
    _json(logout)
    new = verb("add", "add a login, with every choice there is")
    _provider(new, None)
    new.add_argument(
        "--for", dest="purpose", choices=("tools",), default="", help="what it is for: connected tools"
    )
    new.add_argument("--label", default="", help="name of the login")
    new.add_argument("--priority", type=int, default=None, metavar="N", help="order among several logins")
    _login_flags(new)
    step = verb("step-up", "ask for more rights for this login, for example billing:manage")
    step.add_argument("--scope", default="billing:manage", help="right to ask for (billing:manage)")
    _flow_flags(step)
