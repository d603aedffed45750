"""What a chat platform has to offer to be served by the gateway (decision 30). A host hands its adapters to `serve`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

__all__ = ["Adapter", "Deliver", "Inbound"]


@attrs.frozen(kw_only=True)
class Inbound:
    """One message from a platform.

    Attributes:
        adapter: name of the adapter.
        id: the platform's own id of the message; the same id is never worked on twice.
        chat: the conversation.
        text: what was said.
        user: the platform's stable id of who said it, never a display name; empty when it tells none.
        private: nobody else reads this conversation.
    """

    adapter: str
    id: str
    chat: str
    text: str
    user: str = ""
    private: bool = False


Deliver = Callable[[Inbound], Awaitable[bool]]
"""Hands a message to the gateway. When it returns, the message is on disk: the platform's position may move on."""


class Adapter(Protocol):
    """One platform."""

    @property
    def name(self) -> str:
        """Short name, unique in the process."""
        ...

    async def run(self, deliver: Deliver) -> None:
        """Receive messages until cancelled."""
        ...

    async def send(self, chat: str, text: str) -> None:
        """Send a finished answer."""
        ...
