"""What a daemon does to belong to a fleet::

    async with nedura.FleetMember(home) as member:
        async with member.turn():     # around each unit of work
            ...
        await member.wait_stopped()
    raise SystemExit(member.exit_code)

That gives it the claim of its home, `gateway_state.json` with its code identity, the control socket, SIGUSR1 drain, exit codes and a
version that an update can verify.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs

from nedura.clock import iso
from nedura.config import read_config
from nedura.errors import FleetError, RecordMissing, RefusedError, StoreError
from nedura.fleet.claim import Claim, PidRecord
from nedura.fleet.control_protocol import PROTOCOL
from nedura.fleet.control_server import ControlServer
from nedura.fleet.drain import EXIT_PLANNED, EXIT_RESTART, EXIT_UNEXPECTED, DrainSettings
from nedura.fleet.identity import masked_argv
from nedura.fleet.markers import consume_marker
from nedura.fleet.member_options import MemberOptions
from nedura.fleet.notify import Notifier
from nedura.fleet.skew import Skew
from nedura.fleet.socketpath import Bound, bind_socket
from nedura.fleet.statefile import STATE_NAME, StateWriter
from nedura.fleet.stopping import Stopper
from nedura.fleet.storm import StormRule, note_start
from nedura.fleet.supervision import Supervision, supervision_of
from nedura.fleet.turns import Turn, TurnKind, Turns
from nedura.fleet.watchdog import LoopWatch, dump_stacks
from nedura.homes import process_home, profile_name, root_home
from nedura.installs import CodeIdentity, running_code
from nedura.records import check_folder, make_folder, write_bytes, write_json

__all__ = ["FleetMember", "own_supervision"]

CLEAN_NAME: Final = ".clean_shutdown"

logger = logging.getLogger(__name__)


def own_supervision(options: MemberOptions | None = None) -> Supervision:
    """Who starts this process again."""
    options = options or MemberOptions()
    pid = os.getpid()
    return supervision_of(
        options.environ,
        sys.orig_argv,
        pid=pid,
        ppid=os.getppid(),
        cgroup=options.processes.cgroup(pid),
        product=options.product,
    )


def _check_owner(home: Path) -> None:
    """Root never serves another user's home: it would leave files there that their owner cannot write (threats.md 4).

    Raises:
        RefusedError: the home is somebody else's.
    """
    owner = home.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise RefusedError(
            "This home belongs to another user, and root would leave files there that its owner cannot write.",
            advice=f"Run it as its owner: sudo -u '#{owner}' ...",
        )


class FleetMember:
    """Membership of the running process in the fleet of one home.

    Args:
        home: the home it serves; default the process home, never a context override.
        options: seams and switches.
    """

    def __init__(self, home: Path | None = None, options: MemberOptions | None = None) -> None:
        self.options = options or MemberOptions()
        self.home = Path(os.path.abspath(process_home() if home is None else home))
        self.code: CodeIdentity = running_code()
        self.exit_code = EXIT_PLANNED
        self.exit_reason = ""
        self.state = "starting"
        self.served_profiles: tuple[str, ...] = ()
        self.platforms: dict[str, dict[str, Any]] = {}
        self._born = time.monotonic()
        self._boot_s: float | None = None
        self._restart_requested = False
        self._turns = Turns(time.monotonic, self._on_change)
        self._stopper = Stopper(self._turns, self._on_hanging_stop)
        self._record = PidRecord.of_this_process(
            self.home, kind=f"{self.options.product.name}-gateway", processes=self.options.processes
        )
        self._claim = Claim(self.home, self._record)
        self._taking = threading.Lock()
        self._entered = self._left = False
        self._skew = Skew(self.code, Path(__file__))
        self._notifier = Notifier(self.options.environ)
        self._writer = StateWriter(self.home / STATE_NAME, self.status)
        self._server: ControlServer | None = None
        self._watch: LoopWatch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handled: list[tuple[signal.Signals, Any]] = []

    # ---- entering and leaving -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Claim the home and become visible.

        Raises:
            ClaimTaken: another process serves the home.
            ConfigError: the home's config cannot be read.
            StoreError: the home cannot be used.
            FleetError: this membership was used before.
        """
        if self._entered:
            raise FleetError("A membership is entered once; make another FleetMember.")
        self._entered = True
        self._loop = asyncio.get_running_loop()
        self._prepare_home()
        self._stopper.settings = self._read_settings()
        self._supervision = own_supervision(self.options)
        self._install_signals()
        try:
            await asyncio.to_thread(self._take)
            self._writer.start()
            self._writer.touch()
            if self.options.storm is not None:
                await self._weather_storm(self.options.storm)
            self._start_server()
        except BaseException:
            self._abandon()
            raise
        if self.options.auto_ready:
            self.ready()
        return self

    def _take(self) -> None:
        """In a thread: a cancelled entry does not stop it, so what it took is let go of again."""
        with self._taking:
            if not self._left:
                self._claim.take()

    def _abandon(self) -> None:
        """Undo an entry that failed or was cancelled."""
        self._left = True
        self._stopper.end()
        if self._server is not None:
            self._server.stop()
        self._writer.end()
        with self._taking:
            self._claim.release()
        self._stopper.disarm()
        self._remove_signals()

    def ready(self) -> None:
        """Say that work can come in: state `running`, READY to the manager."""
        if self._boot_s is None:
            self._boot_s = round(self._age(), 3)
        if not self._stopper.begun:
            self.state = "running"
        self._notifier.send(READY="1", STATUS=f"serving {self.profile}")
        self._writer.touch()

    def _age(self) -> float:
        """Seconds since the kernel started this process, or since this object where that cannot be told."""
        start = self._record.start_time
        if start is None or not sys.platform.startswith("linux"):
            return time.monotonic() - self._born
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK"))

    def fail_startup(self, reason: str, exit_code: int) -> None:
        """Say that the start failed; leave the block afterwards."""
        self.state, self.exit_reason, self.exit_code = "startup_failed", reason, exit_code
        self._stopper.end()
        self._stopper.stopped.set()
        self._writer.touch()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Become invisible: terminal state, socket, pid file and lock gone, even when this is cancelled too."""
        self._stopper.end()
        try:
            await self._leave(kind)
        finally:
            self._left = True
            self._claim.release()
            if not self._stopper.forced:
                self._stopper.disarm()  # interrupted work may sit in a thread that the interpreter's exit waits for
            self._remove_signals()

    async def _leave(self, kind: type[BaseException] | None) -> None:
        if kind is not None and not self._stopper.begun:
            self.exit_code = self.exit_code or EXIT_UNEXPECTED
            self.exit_reason = self.exit_reason or kind.__name__
        self._notifier.send(STOPPING="1")
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
        unexpected = self.exit_code == EXIT_UNEXPECTED and self.exit_reason.startswith("signal")
        if self.state != "startup_failed":
            # after an unexpected signal the claim to run stands, so that whoever starts the machine's services starts it again
            self.state = "running" if unexpected else "stopped"
        await asyncio.to_thread(self._writer.stop)
        if kind is None and not self._stopper.forced and self.state != "startup_failed" and not self._turns:
            self._touch_clean()

    def _prepare_home(self) -> None:
        root = root_home(self.home, self.options.environ)
        if self.home.is_dir():
            _check_owner(self.home)
            check_folder(self.home)
        else:
            if self.home != root:
                raise RecordMissing(f"The home of profile {self.profile} does not exist.")
            make_folder(self.home)
        try:
            os.unlink(self.home / CLEAN_NAME)
        except OSError:
            pass  # there was none

    def _read_settings(self) -> DrainSettings:
        if self.options.settings is not None:
            return self.options.settings
        return DrainSettings.read(read_config(self.home).get, self.options.environ, self.options.product)

    async def _weather_storm(self, rule: StormRule) -> None:
        """Only a start that has the claim counts, and a stop ends the wait."""
        delay = note_start(self.home, time.time(), rule)
        if not delay:
            return
        logger.warning("started too often; waiting %.0f s before this start", delay)
        try:
            async with asyncio.timeout(delay):
                await self._stopper.stopped.wait()
        except TimeoutError:
            pass  # the storm is over

    def _touch_clean(self) -> None:
        try:
            write_bytes(self.home / CLEAN_NAME, b"")
        except StoreError as error:
            logger.warning("%s", error.message)

    def _start_server(self) -> None:
        assert self._loop is not None
        self._watch = LoopWatch(
            self._loop, self._notifier, self._on_wedged_loop, enabled=self.options.watchdogs
        )
        bound: Bound | None = None
        try:
            bound = bind_socket(self.home, "gateway", self.options.environ)
        except StoreError as error:
            logger.warning("no control socket: %s", error.message)  # files and scans still find us
        self._server = ControlServer(
            bound,
            {"identify": self._identify, "status": self._status_verb},
            {"pause-for-update": self._pause_verb, "rescan-profiles": self._rescan_verb},
            self._loop,
            (self._watch.run,),
        )
        self._server.start()

    # ---- turns and stopping ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(
        self, session: str = "", *, kind: TurnKind = "chat", model: str = ""
    ) -> AsyncIterator[Turn]:
        """One unit of work that a drain waits for.

        Args:
            session: whose, for people.
            kind: what it is.
            model: what answers it.

        Raises:
            Draining: the process is about to restart or stop and takes no new work.
        """
        turn = self._turns.enter(kind, session, model)
        try:
            yield turn
        finally:
            self._turns.leave(turn)

    def serve_profiles(self, names: Iterable[str]) -> None:
        """Say which further profiles this process serves now."""
        self.served_profiles = tuple(names)
        self._writer.touch()

    @property
    def profile(self) -> str:
        """Profile of the home."""
        return profile_name(self.home, root_home(self.home, self.options.environ))

    @property
    def settings(self) -> DrainSettings:
        """The drain budgets in force."""
        return self._stopper.settings

    @property
    def active_turns(self) -> int:
        """Units of work in flight."""
        return len(self._turns)

    @property
    def forced(self) -> bool:
        """Whether the drain had to interrupt work; what ran in a thread may run still."""
        return self._stopper.forced

    @property
    def draining(self) -> bool:
        """Whether no new work is taken."""
        return self._turns.refusing

    async def wait_stopped(self) -> None:
        """Wait until the process may end: nothing runs any more, or its time is over."""
        await self._stopper.stopped.wait()

    def request_restart(self, reason: str = "restart requested") -> bool:
        """Begin the drain that ends with exit code 75. False when a stop is under way already."""
        if self._stopper.begun:
            return False
        self._restart_requested = True
        self._begin(EXIT_RESTART, reason, restart=True)
        return True

    def request_stop(self, exit_code: int = EXIT_PLANNED, reason: str = "stop requested") -> None:
        """Begin a stop, or hurry a restart that is waiting for running work; its exit code then stays 75."""
        if self._stopper.begun:
            self._stopper.hurry()
        else:
            self._begin(exit_code, reason, restart=False)

    def _begin(self, exit_code: int, reason: str, *, restart: bool) -> None:
        self.exit_code, self.exit_reason = exit_code, reason
        self.state = "draining"
        self._stopper.begin(restart=restart)
        self._notifier.send(STATUS="draining")
        self._writer.touch()

    def _on_change(self) -> None:
        self._stopper.changed()
        self._writer.touch()

    # ---- signals --------------------------------------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        if not self.options.signals or threading.current_thread() is not threading.main_thread():
            return
        assert self._loop is not None
        for number, handler in (
            (signal.SIGUSR1, self._on_usr1),
            (signal.SIGTERM, self._on_term),
            (signal.SIGINT, self._on_int),
        ):
            self._handled.append((number, signal.getsignal(number)))
            self._loop.add_signal_handler(number, handler)

    def _remove_signals(self) -> None:
        while self._handled and self._loop is not None:
            number, before = self._handled.pop()
            self._loop.remove_signal_handler(number)
            if number == signal.SIGUSR1 and before == signal.SIG_DFL:
                before = signal.SIG_IGN  # its default would kill the process in its last instants
            if before is not None:
                signal.signal(number, before)

    def _on_usr1(self) -> None:
        self.request_restart("SIGUSR1")

    def _on_int(self) -> None:
        self.request_stop(EXIT_PLANNED, "interrupted by its user")

    def _on_term(self) -> None:
        assert self._loop is not None
        pid, start_time, now = self._record.pid, self._record.start_time, time.time()
        for kind in ("planned-stop", "takeover"):
            if consume_marker(self.home, kind, pid=pid, start_time=start_time, now=now):
                self.request_stop(EXIT_PLANNED, kind.replace("-", " "))
                return
        # a unit's stop notice, SIGINT, is handled after SIGTERM when both came before we ran: the kernel stacks their handlers
        self._loop.call_later(0.05, self.request_stop, EXIT_UNEXPECTED, "signal SIGTERM without notice")

    # ---- watchdogs ------------------------------------------------------------------------------------------------------------

    def _on_wedged_loop(self) -> None:
        """In the control thread: the loop is dead, so everything is done here and now."""
        dump_stacks(self.home / "logs" / "gateway-loop-watchdog.log")
        self._last_words("loop_liveness_watchdog")
        self.options.hard_exit(EXIT_RESTART)

    def _on_hanging_stop(self) -> None:
        if not self.options.watchdogs:
            return
        if self._left:  # the home is another's by now: nothing is written there
            self.options.hard_exit(self.exit_code)
            return
        dump_stacks(self.home / "logs" / "gateway-shutdown-watchdog.log")
        self._last_words("shutdown_watchdog")
        self.options.hard_exit(EXIT_UNEXPECTED)

    def _last_words(self, reason: str) -> None:
        self.state, self.exit_reason = "degraded", reason
        try:
            write_json(self.home / STATE_NAME, self.status(), indent=None)
        except StoreError:
            pass  # the process ends in any case

    # ---- what is said about it ------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The whole state record (facts/runtime.md 2.2), stamped now. Any thread may ask."""
        wedged = self.settings.wedged_s
        return {
            **self._who(),
            "argv": masked_argv(self._record.argv),
            "exit_reason": self.exit_reason or None,
            "restart_requested": self._restart_requested,
            "planned": self._stopper.begun and self.exit_code in (EXIT_PLANNED, EXIT_RESTART),
            "active_work": self._turns.public(wedged),
            "platforms": self.platforms,
            "host": self._record.host,
            "boot_id": self._record.boot_id,
            "updated_at": iso(time.time()),
        }

    def _who(self) -> dict[str, Any]:
        return {
            "pid": self._record.pid,
            "kind": self._record.kind,
            "start_time": self._record.start_time,
            "nedura_home": str(self.home),
            "profile": self.profile,
            **attrs.asdict(self._supervision),
            "gateway_state": self.state,
            "active_agents": len(self._turns),
            "served_profiles": list(self.served_profiles),
            **attrs.asdict(self.code),
            "boot_s": self._boot_s,
            "drain_budget_s": self.settings.budget_s,
            "stale": self._skew.stale,
        }

    def _loop_age(self) -> float:
        if self._watch is None:
            return 0.0
        age = self._watch.age
        self._watch.ping()
        return round(age, 3)

    def _identify(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"protocol": PROTOCOL, **self._who(), "loop_age_s": self._loop_age()}

    def _status_verb(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            **self.status(),
            "loop_age_s": self._loop_age(),
            "answered_at": time.time(),
            "answering_pid": self._record.pid,
        }

    async def _pause_verb(self, params: Mapping[str, Any]) -> dict[str, Any]:
        already = self._stopper.begun
        return {
            "pausing": self.request_restart("pause-for-update"),
            "already_stopping": already,
            "pid": self._record.pid,
            "drain_timeout": self.settings.budget_s,
        }

    async def _rescan_verb(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.options.rescan is None:
            return {"served_profiles": [], "added": [], "removed": [], "multiplex": False}
        return {"multiplex": True, **await self.options.rescan()}
