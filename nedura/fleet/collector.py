"""One collection under way: sockets first, files next, a scan of the process table last (facts/update.md 3.2)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet.claim import boot_id, lock_holder
from nedura.fleet.identity import Classification, classify, needle_for
from nedura.fleet.ledger import SpawnLedger
from nedura.fleet.looking import look, runtime_of
from nedura.fleet.model import Fleet, Foreign, Probe, Runtime, RuntimeKind
from nedura.fleet.processes import Processes, ancestors, liveness
from nedura.fleet.scope import HomeKey, Scope, home_key, home_of_process
from nedura.fleet.statefile import TERMINAL_STATES, StateRecord, read_state
from nedura.fleet.supervision import supervision_of
from nedura.homes import profile_name
from nedura.product import Product
from nedura.text import clean

__all__ = ["Collector"]

FIRST: Final = 1
"""Pid of the init process."""


@attrs.define
class Collector:
    """One collection under way.

    Attributes:
        root: the root home.
        scope: what this install owns.
        product: names.
        processes: the process table.
        environ: the environment, for the user's runtime folder.
        now: unix seconds.
        found: live runtimes of ours by pid.
        foreign: what was seen and left alone.
        gone: gateways whose files still claim to run.
        probes: what was asked.
        unit_homes: homes that service definitions name, by pid.
    """

    root: Path
    scope: Scope
    product: Product
    processes: Processes
    environ: Mapping[str, str]
    now: float
    found: dict[int, Runtime] = attrs.field(factory=dict)
    foreign: list[Foreign] = attrs.field(factory=list)
    gone: list[Runtime] = attrs.field(factory=list)
    probes: list[Probe] = attrs.field(factory=list)
    unit_homes: dict[int, str] = attrs.field(factory=dict)
    _ledger_homes: dict[int, str] | None = None

    @property
    def homes(self) -> tuple[Path, ...]:
        """The homes that are looked at."""
        return tuple(home for home, _ in self.scope.homes)

    def add(self, runtime: Runtime, *, our_unit: bool = False) -> None:
        """Take a runtime that runs on one of our homes, unless its install says it is not ours."""
        pending = not (runtime.code.code_sha or runtime.code.generation or runtime.code.code_version)
        reason = self.scope.foreign_reason(
            home_key(runtime.home), runtime.code.install_id, our_unit=our_unit, pending=pending
        )
        if reason is None:
            self.found.setdefault(runtime.pid, runtime)
        else:
            self.leave(
                Foreign(
                    what="gateway process",
                    name=runtime.unit or f"pid {runtime.pid}",
                    reason=reason,
                    home=runtime.home,
                    pid=runtime.pid,
                    detail=runtime.code.install_id,
                )
            )

    def leave(self, item: Foreign) -> None:
        """Name something that is left alone, once."""
        if not any(item.pid is not None and other.pid == item.pid for other in self.foreign):
            self.foreign.append(item)

    def seen(self, pid: int) -> bool:
        """Whether a process is accounted for."""
        return pid in self.found or any(item.pid == pid for item in self.foreign)

    # ---- sockets ----

    async def ask_sockets(self, timeout: float) -> list[Path]:
        """Ask every home's socket at once; returns the homes that gave no answer."""
        answers = await asyncio.gather(
            *(look(home, root=self.root, timeout=timeout, environ=self.environ) for home in self.homes)
        )
        for answer in answers:
            if answer is not None:
                self.add(answer)
        self.probes.append(Probe(what="control socket", count=len(self.homes)))
        served = {name for runtime in self.found.values() for name in runtime.served_profiles}
        return [
            home
            for home, answer in zip(self.homes, answers, strict=True)
            if answer is None and profile_name(home, self.root) not in served
        ]

    # ---- files ----

    def read_files(self, homes: Iterable[Path]) -> None:
        """Locks and state files of homes whose socket was silent. A foreign writer's code is not believed (#110420)."""
        count = 0
        for home in homes:
            count += 1
            holder = lock_holder(home, self.processes)
            record = read_state(home, self.now)
            if holder.held and holder.pid is not None:
                self._from_lock(home, holder.pid, holder.record.start_time if holder.record else None, record)
            elif holder.held is False and record is not None and record.pid is not None:
                self._from_dead(home, record)
        self.probes.append(Probe(what="state file", count=count))

    def _from_lock(self, home: Path, pid: int, start: int | None, record: StateRecord | None) -> None:
        if (
            record is None
            or record.pid != pid
            or (record.start_time != start and record.start_time is not None)
        ):
            record = StateRecord()
        stat = self.processes.stat(pid)
        found = runtime_of(
            self._supervised(record, pid),
            pid=pid,
            start_time=start,
            home=home,
            profile=profile_name(home, self.root),
            source="file",
        )
        self.add(attrs.evolve(found, halted=stat is not None and stat.halted))

    def _from_dead(self, home: Path, record: StateRecord) -> None:
        """A file that still claims to run although nobody holds the lock."""
        pid = record.pid
        claims = bool(record.state) and record.state not in TERMINAL_STATES
        if pid is None or not (claims or record.restart_requested):
            return
        if liveness(self.processes, pid, record.start_time) == "alive" and self._is_gateway(pid):
            return  # it lives without its lock: the scan reports it
        self.gone.append(
            runtime_of(
                record,
                pid=pid,
                start_time=record.start_time,
                home=home,
                profile=profile_name(home, self.root),
                source="file",
                detail={
                    "restart_requested": record.restart_requested and record.boot_id in ("", boot_id()),
                    "exit_reason": record.exit_reason,
                },
            )
        )

    def _is_gateway(self, pid: int) -> bool:
        argv = self.processes.argv(pid)
        return bool(argv) and classify(argv or (), product=self.product).may_host

    def _supervised(self, record: StateRecord, pid: int) -> StateRecord:
        """Fill in who supervises a process that did not say so itself."""
        if record.supervisor:
            return record
        environ, stat = self.processes.environ(pid), self.processes.stat(pid)
        if environ is None or stat is None:
            return record
        found = supervision_of(
            environ,
            self.processes.argv(pid) or (),
            pid=pid,
            ppid=stat.ppid,
            cgroup=self.processes.cgroup(pid),
            product=self.product,
        )
        return attrs.evolve(record, supervisor=found.supervisor, unit=found.unit, unit_scope=found.unit_scope)

    # ---- scan ----

    def scan(self) -> None:
        """The process table: what no socket and no lock told. Ancestors that look like a gateway stay visible (#87594)."""
        count = 0
        for pid, argv in self.processes.matching(needle_for(self.product)):
            if pid == os.getpid() or self.seen(pid):
                continue
            verdict = classify(argv, product=self.product)
            if verdict.role not in ("gateway", "serve", "dashboard"):
                continue
            count += 1
            self._scanned(pid, verdict)
        self._note_hidden()
        self.probes.append(Probe(what="process table", count=count))

    def _note_hidden(self) -> None:
        """Say so when the system shows us no process of other users: the first process of all is always there (case C194)."""
        if self.processes.stat(FIRST) is None:
            self.leave(
                Foreign(what="processes of other users", name="process table", reason="home unreadable")
            )

    def _scanned(self, pid: int, verdict: Classification) -> None:
        stat = self.processes.stat(pid)
        if stat is None or stat.dead:
            return
        kind: RuntimeKind = "gateway" if verdict.gateway_run else "serve"
        if verdict.role == "dashboard":
            kind = "dashboard"
        environ = self.processes.environ(pid)
        key = self.home_of(pid, environ, verdict)
        home = self.scope.home(key)
        if home is not None and self._stranger(pid, home):
            self.leave(
                Foreign(what=f"{kind} process", name=f"pid {pid}", reason="another user", home=home, pid=pid)
            )
            return
        if home is None or self._served_by_member(home, kind):
            reason = self.scope.foreign_reason(key, "")
            if reason is not None and home is None:
                self.leave(
                    Foreign(
                        what=f"{kind} process",
                        name=f"pid {pid}",
                        reason="another user" if key is None and self._foreign_user(pid) else reason,
                        home=Path(key.path) if key is not None else None,
                        pid=pid,
                    )
                )
            return
        record = self._supervised(StateRecord(), pid)
        runtime = runtime_of(
            record,
            pid=pid,
            start_time=stat.start_time,
            home=home,
            profile=profile_name(home, self.root),
            source="scan",
        )
        self.add(attrs.evolve(runtime, kind=kind, restart_via=runtime.restart_via, halted=stat.halted))

    def home_of(self, pid: int, environ: Mapping[str, str] | None, verdict: Classification) -> HomeKey | None:
        """The home a process of ours really runs on.

        Its live environment says it, else its unit's definition, else the ledger's row of this very incarnation; its own profile
        flag picks the profile under that home's root.
        """
        named = (
            home_of_process(pid, environ, self.product) or self.unit_homes.get(pid) or self._registered(pid)
        )
        if named is None:
            return None
        if verdict.profile is None:
            return home_key(named)
        base = Path(named)
        root = base.parent.parent if base.parent.name == "profiles" else base
        return home_key(root if verdict.profile == "default" else root / "profiles" / verdict.profile)

    def _registered(self, pid: int) -> str | None:
        if self._ledger_homes is None:
            live = SpawnLedger(self.root, self.processes).live()
            self._ledger_homes = {entry.pid: entry.home for entry in live if entry.home}
        return self._ledger_homes.get(pid)

    def _served_by_member(self, home: Path, kind: RuntimeKind) -> bool:
        """Whether the home's one gateway is known already: a second process there is its launcher or about to be refused."""
        return kind == "gateway" and any(
            runtime.home == home and runtime.kind == "gateway" for runtime in self.found.values()
        )

    def _stranger(self, pid: int, home: Path) -> bool:
        """Whether a look-alike runs under another uid than the home's owner: its environment is a claim, not a fact."""
        uid = self.processes.uid(pid)
        try:
            return uid is not None and uid != os.stat(home).st_uid
        except OSError:
            return True  # the home went away while we looked

    def _foreign_user(self, pid: int) -> bool:
        uid = self.processes.uid(pid)
        return uid is not None and uid != os.geteuid()

    # ---- ledger ----

    def read_ledger(self) -> None:
        """Serve and dashboard processes that were registered when they were started."""
        ledger = SpawnLedger(self.root, self.processes)
        entries = ledger.live()
        for entry in entries:
            if entry.purpose not in ("serve", "dashboard"):
                continue
            home = self.scope.home(home_key(entry.home)) if entry.home else None
            if home is None:
                continue
            desktop = ledger.spawner_alive(entry)
            kind: RuntimeKind = "serve" if entry.purpose == "serve" else "dashboard"
            self.found[entry.pid] = Runtime(
                kind=kind,
                profile=profile_name(home, self.root),
                pid=entry.pid,
                start_time=entry.start_time,
                home=home,
                supervisor="desktop" if desktop else "manual-serve",
                source="ledger",
                detail={"host": clean(entry.host), "port": entry.port, "argv": list(entry.argv)},
            )
        self.probes.append(Probe(what="spawn ledger", count=len(entries)))

    def fleet(self) -> Fleet:
        """Everything found, in a stable order."""
        chain = ancestors(self.processes, os.getpid())
        rows = [
            attrs.evolve(runtime, ancestor=runtime.pid in chain, restart_via=runtime.restart_via)
            for runtime in self.found.values()
        ]
        rows.sort(key=lambda row: (row.kind != "gateway", row.profile != "default", row.profile, row.pid))
        return Fleet(
            runtimes=tuple(rows),
            foreign=tuple(self.foreign),
            gone=tuple(self.gone),
            homes=self.homes,
            probes=tuple(self.probes),
            collected_at=self.now,
        )
