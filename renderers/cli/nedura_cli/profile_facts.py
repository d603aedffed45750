"""What surfaces show about a profile: model, account, gateway. Reads only, and never fails."""

from __future__ import annotations

import time
from typing import Any

from nedura.config import read_config
from nedura.errors import NeduraError
from nedura.profiles import Profile
from nedura.text import clean

__all__ = ["account_of", "facts_of", "gateway_of", "model_of"]


def model_of(profile: Profile) -> str:
    """The configured model; empty when there is none or the config cannot be read."""
    try:
        value = read_config(profile.home).get("model.default") or read_config(profile.home).get("model")
    except NeduraError:
        return ""
    return clean(value, 80) if isinstance(value, str) else ""


def account_of(profile: Profile) -> str:
    """E-mail of the saved account, `free tier`, or empty."""
    from nedura.signin import AccountStore

    try:
        state = AccountStore(profile.home).read()
    except NeduraError:
        return ""
    kind = state.kind(time.time()).name
    if kind == "ACCOUNT":
        return clean(state.email, 80) or "signed in"
    return "free tier" if kind == "GUEST" else ""


def gateway_of(profile: Profile) -> dict[str, Any]:
    """Version and process of the running gateway; empty values when none runs."""
    from nedura.fleet import ask_now

    answer = ask_now(profile.home, "identify", timeout=0.5)
    if not answer:
        return {"gateway_pid": None, "gateway_version": ""}
    return {"gateway_pid": answer.get("pid"), "gateway_version": clean(answer.get("code_version"), 40)}


def facts_of(profile: Profile) -> dict[str, Any]:
    """All of it."""
    return {"model": model_of(profile), "account": account_of(profile), **gateway_of(profile)}
