"""`/login` in a chat: the one sign-in flow, pushed line by line beside the turns, so that a headless gateway can be given a login again.

Only an operator may start it, and only where nobody else reads: whoever approves the code decides whose account this gateway uses. An
operator is a stable `platform:user` of `gateway.operators` in the root's config (nobody by default), or whoever may open the local chat.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

import attrs

from nedura.config import read_config
from nedura.errors import NeduraError
from nedura.homes import root_home
from nedura.signin import Code, SignInState, Waiting, run_sign_in
from nedura.signin.desk import Desk

__all__ = ["LOCAL", "Logins", "Sender", "is_login"]

LOCAL: Final = "local"
"""The platform of the chat socket, which only this user's processes can open."""

START: Final = "Starting the sign-in ..."
NOT_HERE: Final = "Please send me /login in a direct message: the code is for your eyes only."
NOT_YOU: Final = "Only an operator of this gateway can sign it in."
BUSY: Final = "A sign-in is under way in another chat. Please try again in a few minutes."
STOPPED: Final = (
    "The gateway restarts, so this sign-in has ended and its code is void. Please send /login again."
)

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Sender:
    """Who asks, and where.

    Attributes:
        platform: name of the adapter, or `local`.
        chat: id of the conversation.
        user: the platform's stable id of the person, never a display name; empty when it tells none.
        private: nobody else reads this conversation.
    """

    platform: str
    chat: str
    user: str = ""
    private: bool = False


def is_login(text: str) -> bool:
    """Whether a message is the command, exactly: a sentence about it goes to the model."""
    return text.strip().lower() == "/login"


Flow = Callable[..., AsyncGenerator[SignInState, None]]
Push = Callable[[str], Awaitable[None]]


class Logins:
    """The sign-ins of one process: one at a time, and the same person's newer one of the same profile takes over.

    Args:
        flow: makes the states.
    """

    def __init__(self, flow: Flow = run_sign_in) -> None:
        self._flow = flow
        self._desk = Desk(width=1)

    async def run(self, home: Path, sender: Sender, push: Push) -> None:
        """Sign in, pushing message by message: link alone, code alone, a word of care, and how it ended. Cancel it to stop.

        Args:
            home: the profile that is signed in.
            sender: who asks.
            push: sends one message to the chat.
        """
        refusal = _refusal(home, sender)
        ticket = None if refusal else self._desk.begin((home, sender.platform, sender.chat, sender.user))
        if ticket is None:
            await push(refusal or BUSY)
            return
        try:
            await push(START)
            async with aclosing(self._flow(home=home, cancelled=ticket)) as states:
                async for state in states:
                    for line in _told(state):
                        await push(line)
        finally:
            self._desk.end(ticket)


def _told(state: SignInState) -> list[str]:
    if isinstance(state, Code):
        return [state.link, state.code, state.copy_with_wait]
    if isinstance(state, Waiting) and not state.trouble:
        return []
    return [state.copy]


def _refusal(home: Path, sender: Sender) -> str:
    if sender.platform == LOCAL:
        return ""
    if not sender.private or not sender.chat:
        return NOT_HERE
    return "" if sender.user and f"{sender.platform}:{sender.user}" in _operators(home) else NOT_YOU


def _operators(home: Path) -> frozenset[str]:
    """Who may; nobody when the config cannot be read or makes no sense."""
    try:
        named = read_config(root_home(home)).get("gateway.operators", [])
    except NeduraError as error:
        logger.warning("no operators: %s", error.message)
        return frozenset()
    return frozenset(one for one in named if isinstance(one, str)) if isinstance(named, list) else frozenset()
