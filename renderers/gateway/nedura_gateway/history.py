"""What was said in each chat, kept in memory and bounded; enough for a model to follow a conversation."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from nedura_gateway.handlers import Message

__all__ = ["History"]

MAX_CHATS: Final = 200
MAX_MESSAGES: Final = 40


class History:
    """The newest messages of the newest chats."""

    def __init__(self) -> None:
        self._chats: OrderedDict[str, deque[Message]] = OrderedDict()

    def of(self, chat: str) -> tuple[Message, ...]:
        """What was said in a chat, oldest first."""
        return tuple(self._chats.get(chat, ()))

    def add(self, chat: str, *messages: Message) -> None:
        """Remember messages; the oldest ones and the longest silent chats go."""
        known = self._chats.setdefault(chat, deque(maxlen=MAX_MESSAGES))
        self._chats.move_to_end(chat)
        known.extend(messages)
        while len(self._chats) > MAX_CHATS:
            self._chats.popitem(last=False)
