"""Works off the inbox: one message of a chat after the other, chats beside each other, each as a turn of the member."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import attrs

from nedura.errors import NeduraError, StoreError
from nedura.fleet import Draining, FleetMember
from nedura.homes import home_override
from nedura_gateway.adapters import Adapter, Inbound
from nedura_gateway.handlers import Handler, Message, ToolEvent, TurnContext
from nedura_gateway.history import History
from nedura_gateway.inbox import Inbox, Pending
from nedura_gateway.login import STOPPED, Logins, Sender, is_login

__all__ = ["PlatformWorker"]

RETRY_SECONDS = 5.0
CLOSING_SECONDS = 5.0
"""How long a stop waits for an answer that is on its way out."""
PUSH_SECONDS = 5.0
"""Longest wait for a platform to take one line of a sign-in."""
GIVEN_UP = "That message could not be worked on; please send it again."

logger = logging.getLogger(__name__)


class PlatformWorker:
    """Serves adapters of one home.

    Args:
        member: each message is one of its turns.
        handler: what answers.
        context: facts for the handler.
        adapters: the platforms by name.
        inbox: the durable queue.
        logins: answers `/login`; None leaves it to the handler.
    """

    def __init__(
        self,
        member: FleetMember,
        handler: Handler,
        context: TurnContext,
        adapters: Mapping[str, Adapter],
        inbox: Inbox,
        logins: Logins | None = None,
    ) -> None:
        self._member = member
        self._handler = handler
        self._context = context
        self._adapters = adapters
        self._inbox = inbox
        self._logins = logins
        self._signing_in: set[asyncio.Task[None]] = set()
        self._history = History()
        self._disk = asyncio.Lock()
        self._chats: dict[str, asyncio.Task[None]] = {}
        self._receivers: list[asyncio.Task[None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Work off what an earlier process left, and begin to receive."""
        for item in self._inbox.pending:
            self._work_on(item.message)
        self._receivers = [
            asyncio.create_task(self._receive(adapter), name=f"adapter {name}")
            for name, adapter in self._adapters.items()
        ]

    async def stop(self) -> None:
        """Stop receiving and working. What is not answered stays in the inbox; an answer on its way out is noted first."""
        tasks = [*self._receivers, *self._chats.values(), *self._signing_in]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSING_SECONDS)
        for task in self._closing:
            task.cancel()

    async def deliver(self, message: Inbound) -> bool:
        """Take a message over. False when it was taken before.

        Raises:
            StoreError: it could not be stored; the platform must keep it.
        """
        async with self._disk:
            taken = await asyncio.to_thread(self._inbox.accept, message)
            login = taken and self._logins is not None and is_login(message.text)
            if login:  # not worked on again by the next process: its code would be another one
                await asyncio.to_thread(self._inbox.finish, message)
        if login and self._logins is not None:
            task = asyncio.create_task(self._login(self._logins, message), name=f"login {message.chat}")
            self._signing_in.add(task)
            task.add_done_callback(self._signing_in.discard)
        elif taken:
            self._work_on(message)
        return taken

    async def _login(self, logins: Logins, message: Inbound) -> None:
        """Push a sign-in's lines beside the turns. A push that fails ends nothing: the account is saved all the same."""
        sender = Sender(
            platform=message.adapter, chat=message.chat, user=message.user, private=message.private
        )
        try:
            with home_override(self._context.home):
                await logins.run(self._context.home, sender, lambda line: self._push(message, line))
        except asyncio.CancelledError:
            await self._push(message, STOPPED)
            raise

    async def _push(self, message: Inbound, text: str) -> None:
        adapter = self._adapters.get(message.adapter)
        try:
            async with asyncio.timeout(PUSH_SECONDS):
                if adapter is not None:
                    await adapter.send(message.chat, text)
        except Exception:  # the border of a platform
            logger.exception("a line of a sign-in could not be sent")

    async def _receive(self, adapter: Adapter) -> None:
        while True:
            try:
                self._note(adapter, state="connected")
                await adapter.run(self.deliver)
                return
            except Exception as error:  # the border of a platform: the others go on, this one tries again
                logger.exception("adapter %s failed", adapter.name)
                self._note(adapter, state="retrying", error_code=type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)

    def _note(self, adapter: Adapter, **facts: Any) -> None:
        self._member.platforms[adapter.name] = facts

    def _work_on(self, message: Inbound) -> None:
        chat = f"{message.adapter}:{message.chat}"
        running = self._chats.get(chat)
        if running is None or running.done():
            self._chats[chat] = asyncio.create_task(self._chat(chat), name=f"chat {chat}")

    async def _chat(self, chat: str) -> None:
        """Work off one chat in order. A drain ends it; the next process goes on."""
        while (item := self._next(chat)) is not None:
            try:
                await self._answer(item, chat)
            except Draining:
                return
            except StoreError as error:
                logger.error("%s", error.message)
                return

    def _next(self, chat: str) -> Pending | None:
        return next(
            (item for item in self._inbox.pending if f"{item.message.adapter}:{item.message.chat}" == chat),
            None,
        )

    async def _answer(self, item: Pending, chat: str) -> None:
        message = item.message
        async with self._member.turn(f"{message.adapter} {message.chat}") as turn:
            text = GIVEN_UP
            if not item.hopeless:
                async with self._disk:
                    await asyncio.to_thread(self._inbox.begin, message)
                text = await self._reply(message, chat, turn.touch)
            # A stop between the answer and its note would have the next process answer again.
            closing = asyncio.create_task(self._close(message, text), name=f"answer {chat}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    async def _close(self, message: Inbound, text: str) -> None:
        adapter = self._adapters.get(message.adapter)
        if adapter is not None and text:
            await adapter.send(message.chat, text)
        async with self._disk:
            await asyncio.to_thread(self._inbox.finish, message)

    async def _reply(self, message: Inbound, chat: str, touch: Any) -> str:
        context = attrs.evolve(self._context, chat=chat, history=self._history.of(chat))
        said: list[str] = []
        try:
            async with aclosing(self._handler(message.text, context)) as pieces:
                async for piece in pieces:
                    touch(piece.name if isinstance(piece, ToolEvent) else None)
                    if not isinstance(piece, ToolEvent):
                        said.append(str(piece))
        except NeduraError as error:
            return error.message
        except Exception:  # border of a turn: a handler's mistake must not end the gateway
            logger.exception("a turn failed")
            return "Something went wrong with this message."
        text = "".join(said)
        self._history.add(chat, Message(role="user", text=message.text), Message(role="assistant", text=text))
        return text
