"""What answers a message: an async generator function `(text, context)` that yields pieces of text and tool events (decision 29)."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import UsageError
from nedura.text import clean

__all__ = ["DEFAULT_HANDLER", "Handler", "Message", "ToolEvent", "TurnContext", "load_handler"]

DEFAULT_HANDLER: Final = "nedura_gateway.model_route:answer"


@attrs.frozen(kw_only=True)
class Message:
    """One line of a conversation.

    Attributes:
        role: `user` or `assistant`.
        text: what was said.
    """

    role: str
    text: str


@attrs.frozen(kw_only=True)
class TurnContext:
    """What a handler knows about the turn.

    Attributes:
        home: the home whose config and account count.
        chat: id of the conversation.
        history: what was said in it before, oldest first.
        request_restart: restarts the gateway once this turn and the others have ended; None where nobody may.
    """

    home: Path
    chat: str = "local"
    history: Sequence[Message] = ()
    request_restart: Callable[[], bool] | None = None


@attrs.frozen(kw_only=True)
class ToolEvent:
    """A turn uses a tool (decision 54).

    Attributes:
        name: the tool.
        text: what it does, one line.
    """

    name: str
    text: str = ""


Handler = Callable[[str, TurnContext], AsyncGenerator[Any, None]]
"""Yields `str` pieces and `ToolEvent`s; closed as soon as nobody listens."""


def load_handler(name: str) -> Handler:
    """Import a handler by `module:function`.

    Raises:
        UsageError: there is none of that name.
    """
    module, mark, function = name.partition(":")
    if not mark or not module or not function:
        raise UsageError(f"{clean(name)} is not of the form module:function.")
    try:
        handler: Handler = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"The handler {clean(name)} cannot be loaded: {clean(error)}.") from error
    if not callable(handler):
        raise UsageError(f"{clean(name)} is not a function.")
    return handler
