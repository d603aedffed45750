"""The chat sockets of one process: its own home's, and those of the profiles it serves beside it (facts/runtime.md 6.6)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.config import Config, read_config
from nedura.errors import NeduraError, StoreError
from nedura.fleet import FleetMember, bind_socket, homes_of, lock_holder
from nedura.homes import DEFAULT_PROFILE, profile_name, root_home
from nedura_gateway.chat_socket import ChatSocket
from nedura_gateway.handlers import Handler, TurnContext
from nedura_gateway.login import Logins

__all__ = ["Rooms", "allowed_profiles", "wants_multiplex"]

RESCAN_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


def wants_multiplex(config: Config) -> bool:
    """Whether the root's config asks for one process that serves all profiles."""
    return config.get("gateway.multiplex_profiles", False) is True


def allowed_profiles(config: Config, names: list[str]) -> list[str]:
    """Which named profiles may be served: all without a list, none with an empty or malformed one."""
    allowed = config.get("gateway.multiplex_profile_allowlist", None)
    if allowed is None:
        return names
    if not isinstance(allowed, list) or not all(isinstance(item, str) for item in allowed):
        logger.warning("gateway.multiplex_profile_allowlist is no list of names; only the default is served")
        return []
    return [name for name in names if name in allowed]


class Rooms:
    """Opens and closes chat sockets as profiles come and go.

    Args:
        member: the process's membership.
        handler: what answers.
        context: facts for the handler; the home is set per room.
        multiplex: serve the other profiles of the root too.
        logins: answers `/login`.
    """

    def __init__(
        self,
        member: FleetMember,
        handler: Handler,
        context: TurnContext,
        *,
        multiplex: bool,
        logins: Logins | None = None,
    ) -> None:
        self._member = member
        self._handler = handler
        self._context = context
        self._multiplex = multiplex
        self._logins = logins
        self._root = root_home(member.home)
        self._open: dict[Path, ChatSocket] = {}
        self._rescan_lock = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the own room, and the others when this process serves them. Platforms need no room: without one it serves on."""
        try:
            await self._open_room(self._member.home)
        except StoreError as error:
            logger.warning("no chat socket: %s", error.message)
        if self._multiplex:
            await self.rescan()
            self._timer = asyncio.create_task(self._rescan_often())

    @property
    def own_open(self) -> bool:
        """Whether the home has its chat socket."""
        return self._member.home in self._open

    async def stop(self) -> None:
        """Close every room."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)
        for room in self._open.values():
            await room.stop()
        self._open.clear()

    async def rescan(self) -> Mapping[str, Any]:
        """Look for profiles that came or went (`rescan-profiles`)."""
        async with self._rescan_lock:
            wanted = await asyncio.to_thread(self._wanted)
            others = {home for home in self._open if home != self._member.home}
            for home in others - wanted:
                await self._open.pop(home).stop()
            opened = set()
            for home in sorted(wanted - others):
                try:
                    await self._open_room(home)
                    opened.add(home)
                except StoreError as error:
                    logger.warning("profile %s is not served: %s", home.name, error.message)
            names = sorted(profile_name(home, self._root) for home in self._open if home != self._member.home)
            self._member.serve_profiles(names)
            return {
                "served_profiles": names,
                "added": sorted(home.name for home in opened),
                "removed": sorted(home.name for home in others - wanted),
            }

    def _wanted(self) -> set[Path]:
        try:
            config = read_config(self._root)
        except NeduraError as error:
            logger.warning("%s", error.message)
            return set(self._open) - {self._member.home}
        homes = {
            home.name: home for home in homes_of(self._root) if home not in (self._root, self._member.home)
        }
        names = allowed_profiles(config, sorted(homes))
        return {
            homes[name] for name in names if homes[name] in self._open or not lock_holder(homes[name]).held
        }

    async def _open_room(self, home: Path) -> None:
        room = ChatSocket(
            bind_socket(home, "chat", os.environ),
            self._member,
            self._handler,
            attrs.evolve(self._context, home=home),
            self._logins,
        )
        await room.start()
        self._open[home] = room

    async def _rescan_often(self) -> None:
        while True:
            await asyncio.sleep(RESCAN_SECONDS)
            try:
                await self.rescan()
            except (OSError, StoreError):
                logger.exception("the look for profiles failed")


def serves_default(home: Path) -> bool:
    """Whether a home is its root's default profile: only that one serves the others."""
    return profile_name(home, root_home(home)) == DEFAULT_PROFILE
