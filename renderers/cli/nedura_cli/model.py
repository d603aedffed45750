"""`nedura model`: sign in when needed, then choose the default model."""

from __future__ import annotations

import argparse
import asyncio
import time

from nedura.errors import NeduraError, RefusedError
from nedura.homes import process_home
from nedura.signin import AccountStore, Kind, ModelChoice, list_models, set_default_model
from nedura.text import redact
from nedura_cli.ask import ask_line, can_ask
from nedura_cli.login import log_in, options_of
from nedura_cli.output import Output

__all__ = ["model"]


def model(args: argparse.Namespace, output: Output) -> int:
    """Log in when there is no account, then pick."""
    store = AccountStore(process_home())
    before = store.read()
    if args.login or before.kind(time.time()) is not Kind.ACCOUNT:
        code = log_in(args, output, options_of(args, "nedura model"))
        if code != 0:
            return code
    try:
        chosen = _choose(args, output)
    except KeyboardInterrupt:
        _keep_active(store, before.document.get("active_provider"))
        raise
    except NeduraError as error:
        _keep_active(store, before.document.get("active_provider"))
        output.remark(f"nedura: {error.diagnostics()} The sign-in is kept; choose later with: nedura model")
        output.record(
            {
                "kind": "error",
                "code": error.code,
                "copy": redact(error.message),
                "copy_terminal": error.diagnostics(),
            }
        )
        return 1
    if not chosen:
        _keep_active(store, before.document.get("active_provider"))
        return 0
    try:
        asyncio.run(set_default_model(process_home(), chosen))
    except (NeduraError, KeyboardInterrupt):
        _keep_active(store, before.document.get("active_provider"))
        raise
    output.line(f"The default model is now {chosen}.")
    output.record({"kind": "model", "default": chosen, "changed": True})
    return 0


def _choose(args: argparse.Namespace, output: Output) -> str:
    """The model that was named or picked; empty when nobody chose."""
    if args.id:
        return str(args.id)
    choice = asyncio.run(list_models(process_home()))
    if not can_ask(output, assume=args.yes):
        _show(choice, output)
        return choice.recommended if args.yes and not choice.current else ""
    _show(choice, output)
    answer = ask_line(
        output, f"Choose 1-{len(choice.models)}, a model id, or Enter to keep things as they are: "
    )
    if not answer:
        output.line("Nothing was changed; the sign-in is kept.")
        return ""
    if answer.isascii() and answer.isdigit():
        number = int(answer)
        if not 1 <= number <= len(choice.models):
            raise RefusedError(f"There is no number {number} in the list.")
        return choice.models[number - 1]
    return answer


def _show(choice: ModelChoice, output: Output) -> None:
    output.record(
        {
            "kind": "models",
            "models": list(choice.models),
            "current": choice.current,
            "recommended": choice.recommended,
        }
    )
    for number, name in enumerate(choice.models, 1):
        marks = [
            mark
            for mark, there in (
                ("in use", name == choice.current),
                ("recommended", name == choice.recommended),
            )
            if there
        ]
        output.line(f"{number:3}  {name}" + (f"  ({', '.join(marks)})" if marks else ""))


def _keep_active(store: AccountStore, active: object) -> None:
    """A login without a choice of model leaves the provider in use as it was (facts/signin.md 6)."""
    if active in (None, "nous"):
        return
    with store.transaction() as transaction:
        transaction.edit(lambda document: document.update(active_provider=active), time.time())
