"""The default handler: the turn goes to the configured model route, and the answer streams back (decision 29)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from nedura.inference import stream_reply
from nedura_gateway.handlers import TurnContext

__all__ = ["answer"]


def answer(text: str, context: TurnContext) -> AsyncGenerator[str, None]:
    """Stream the model's reply to a message and what was said before it."""
    messages = [{"role": message.role, "content": message.text} for message in context.history]
    return stream_reply(context.home, [*messages, {"role": "user", "content": text}])
