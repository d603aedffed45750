"""The gateway process: membership of the fleet, chat rooms and platforms, and a handler that answers."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from nedura.config import Config, read_config
from nedura.errors import ConfigError, NeduraError, RecordMissing, RefusedError, UnsafePath, UsageError
from nedura.fleet import (
    EXIT_CONFIG,
    EXIT_RESTART,
    EXIT_UNEXPECTED,
    ClaimTaken,
    FleetMember,
    MemberOptions,
    StormRule,
    ask,
    look,
    own_supervision,
    take_over,
)
from nedura.homes import process_home, profile_name, root_home
from nedura_gateway.adapters import Adapter
from nedura_gateway.handlers import DEFAULT_HANDLER, Handler, TurnContext, load_handler
from nedura_gateway.inbox import Inbox
from nedura_gateway.login import Logins
from nedura_gateway.platform_worker import PlatformWorker
from nedura_gateway.rooms import Rooms, serves_default, wants_multiplex

__all__ = ["GatewayOptions", "run", "serve"]

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class GatewayOptions:
    """What `gateway run` was asked for.

    Attributes:
        home: the home; default the process home.
        handler: `module:function`; None is the model route.
        replace: take over from the gateway that runs.
        force: start although another process serves this profile.
        supervised: somebody starts this process again; a taken claim is then transient.
        probe: a candidate is tried out: no account worker, no platforms.
    """

    home: Path | None = None
    handler: str | None = None
    replace: bool = False
    force: bool = False
    supervised: bool = False
    probe: bool = False


async def serve(options: GatewayOptions, adapters: Sequence[Adapter] = ()) -> int:
    """Run the gateway until it is asked to stop.

    Args:
        options: what was asked for.
        adapters: platforms of the host application.

    Returns:
        The exit code: 0 planned stop, 1 unexpected signal, 75 start me again, 78 a person has to change something first.
    """
    home = options.home or process_home()
    try:
        return await _serve(home, options, adapters)
    except ClaimTaken as error:
        logger.error("%s", error.diagnostics())
        return await _when_taken(home, options)
    except (ConfigError, UsageError, RecordMissing, RefusedError, UnsafePath) as error:
        logger.error("%s", error.diagnostics())
        return EXIT_CONFIG
    except NeduraError as error:
        logger.error("%s", error.diagnostics())
        return EXIT_UNEXPECTED


async def _serve(home: Path, options: GatewayOptions, adapters: Sequence[Adapter]) -> int:
    handler = load_handler(options.handler or DEFAULT_HANDLER)
    config = read_config(root_home(home)) if home.is_dir() else Config()
    if not options.force:
        await _refuse_if_served(home)
    if options.replace:
        await take_over(home)
    multiplex = serves_default(home) and wants_multiplex(config)
    rooms: Rooms | None = None

    async def rescan() -> Mapping[str, Any]:
        return await rooms.rescan() if rooms is not None else {}

    storm = None if options.probe else storm_rule(config, os.environ)
    member = FleetMember(
        home, MemberOptions(auto_ready=False, storm=storm, rescan=rescan if multiplex else None)
    )
    context = TurnContext(home=home, request_restart=member.request_restart)
    async with member:
        logins = None if options.probe else Logins()
        rooms = Rooms(member, handler, context, multiplex=multiplex, logins=logins)
        worker = None if options.probe else await _start_worker(member, handler, context, adapters, logins)
        try:
            await rooms.start()
            member.platforms["local"] = {"state": "connected" if rooms.own_open else "failed"}
            member.ready()
            logger.info("serving %s as process %d", home, os.getpid())
            with AccountWorker(home, off=options.probe):
                await member.wait_stopped()
        finally:
            await rooms.stop()
            if worker is not None:
                await worker.stop()
    if member.forced:
        _end_now(member)
    return member.exit_code


def _end_now(member: FleetMember) -> None:
    """After a forced drain: a turn that sits in a thread would keep the interpreter, and the exit code, for ever."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    member.options.hard_exit(member.exit_code)


async def _when_taken(home: Path, options: GatewayOptions) -> int:
    """The exit code of a start on a taken home.

    Another service that serves it well is for a person to sort out (78: no supervisor tries again for ever); a holder that is
    about to go, or that says nothing, is worth another try.
    """
    holder, ours = await look(home), own_supervision()
    transient = EXIT_RESTART if options.supervised or ours.supervisor != "manual" else EXIT_UNEXPECTED
    if holder is None or holder.state == "draining" or holder.supervisor == "manual":
        return transient
    return transient if holder.unit and holder.unit == ours.unit else EXIT_CONFIG


async def _start_worker(
    member: FleetMember,
    handler: Handler,
    context: TurnContext,
    adapters: Sequence[Adapter],
    logins: Logins | None,
) -> PlatformWorker | None:
    if not adapters:
        return None
    inbox = await asyncio.to_thread(Inbox, member.home)
    named = {adapter.name: adapter for adapter in adapters}
    worker = PlatformWorker(member, handler, context, named, inbox, logins)
    worker.start()
    return worker


async def _refuse_if_served(home: Path) -> None:
    """A profile that the default gateway serves already gets no second one (#91806).

    Raises:
        RefusedError: it is served.
    """
    root = root_home(home)
    if serves_default(home):
        return
    answer = await ask(root, "identify")
    served = (answer or {}).get("served_profiles")
    name = profile_name(home, root)
    if isinstance(served, list) and name in served:
        raise RefusedError(
            f"The default gateway serves profile {name} already.", advice="Use --force to start another one."
        )


def storm_rule(config: Config, environ: Mapping[str, str]) -> StormRule:
    """The rule against respawn storms from `gateway.respawn_storm` and its environment overrides; junk keeps the default."""
    default = StormRule()
    starts = environ.get("NEDURA_GATEWAY_MAX_STARTS") or config.get("gateway.respawn_storm.max_starts", None)
    window = environ.get("NEDURA_GATEWAY_START_WINDOW_S") or config.get(
        "gateway.respawn_storm.window_s", None
    )
    try:
        rule = StormRule(
            max_starts=int(starts or default.max_starts), window_s=float(window or default.window_s)
        )
    except (TypeError, ValueError):
        return default
    return rule if rule.max_starts > 0 and 0 < rule.window_s < 86400 else default


class AccountWorker:
    """Keeps the login alive and finishes hand-offs while the gateway serves."""

    def __init__(self, home: Path, *, off: bool) -> None:
        self._home = home
        self._off = off

    def __enter__(self) -> None:
        if not self._off:
            from nedura.signin import start_nous_auth_keepalive

            start_nous_auth_keepalive(self._home)

    def __exit__(self, *_: object) -> None:
        if not self._off:
            from nedura.signin import stop_nous_auth_keepalive

            stop_nous_auth_keepalive(self._home)


def run(options: GatewayOptions, adapters: Sequence[Adapter] = ()) -> int:
    """`serve` on a new event loop."""
    return asyncio.run(serve(options, adapters))
