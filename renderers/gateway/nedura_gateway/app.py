"""The gateway process: membership of the fleet, the local chat, and a handler that answers."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import attrs

from nedura.errors import ConfigError, NeduraError, RecordMissing, StoreError, UsageError
from nedura.fleet import (
    EXIT_CONFIG,
    EXIT_RESTART,
    EXIT_UNEXPECTED,
    ClaimTaken,
    FleetMember,
    MemberOptions,
    StormRule,
    bind_socket,
    take_over,
)
from nedura.homes import process_home
from nedura_gateway.chat_socket import ChatSocket
from nedura_gateway.handlers import DEFAULT_HANDLER, TurnContext, load_handler

__all__ = ["GatewayOptions", "serve"]

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class GatewayOptions:
    """What `gateway run` was asked for.

    Attributes:
        home: the home; default the process home.
        handler: `module:function`; None is the model route.
        replace: take over from the gateway that runs.
        force: start although a multiplexer serves this home.
        supervised: somebody starts this process again; a taken claim is then transient.
    """

    home: Path | None = None
    handler: str | None = None
    replace: bool = False
    force: bool = False
    supervised: bool = False


async def serve(options: GatewayOptions) -> int:
    """Run the gateway until it is asked to stop; returns the exit code."""
    home = options.home or process_home()
    try:
        handler = load_handler(options.handler or DEFAULT_HANDLER)
        if options.replace:
            await take_over(home)
        member = FleetMember(home, MemberOptions(auto_ready=False, storm=StormRule()))
        async with member:
            chat = ChatSocket(bind_socket(home, "chat", os.environ), member, handler, TurnContext(home=home))
            await chat.start()
            member.platforms["local"] = {"state": "connected"}
            member.ready()
            logger.info("serving %s as process %d", home, os.getpid())
            try:
                await member.wait_stopped()
            finally:
                await chat.stop()
    except ClaimTaken as error:
        logger.error("%s", error.diagnostics())
        return EXIT_RESTART if options.supervised else EXIT_UNEXPECTED
    except (ConfigError, UsageError, RecordMissing) as error:
        logger.error("%s", error.diagnostics())
        return EXIT_CONFIG
    except (StoreError, NeduraError) as error:
        logger.error("%s", error.diagnostics())
        return EXIT_UNEXPECTED
    return member.exit_code


def run(options: GatewayOptions) -> int:
    """`serve` on a new event loop."""
    return asyncio.run(serve(options))
