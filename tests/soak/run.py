"""The soak itself: one root, one portal, many short-lived processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import attrs
import trustme

from nedura.testing.portal import Fault, Portal, PortalServer
from nedura.testing.portal.routes_oauth import token_set
from tests.soak.check import Ledger, Result, expect_heirs, unfinished, violations
from tests.soak.disk import Login, Seen, copy_of, cut_power, fingerprint, home_of, look
from tests.soak.kills import traced
from tests.soak.operations import Request, child, perform
from tests.soak.plan import APPS, PROFILES, SETTLE_EVERY, Op, Step, steps

STUCK_SECONDS = 40.0
KILL_WITHIN = 0.04
"""Without a tracer a kill comes within so many seconds: most operations take 20 to 80 ms, on a quick machine half of that."""


class PortalClock:
    """The portal's time: it only goes forward, and only when the soak says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@attrs.define(kw_only=True)
class Soak:
    """One run.

    Attributes:
        root: the root home, empty at the start.
        seed: of the plan and of every choice.
        tracer: whether processes can be traced here; without, kills come by time and power is never cut.
        bug: a planted bug.
        report: hears of each violation as (step number, what, operations).
    """

    root: Path
    seed: int
    tracer: bool
    report: Callable[[int, str, str], None]
    bug: str = ""
    clock: PortalClock = attrs.field(factory=PortalClock)
    portal: Portal = attrs.field(init=False)
    ledger: Ledger = attrs.field(init=False)
    rng: random.Random = attrs.field(init=False)
    skew: float = 0.0
    count: int = 0
    done: int = 0
    kills: int = 0
    cuts: int = 0
    url: str = ""

    def __attrs_post_init__(self) -> None:
        self.portal = Portal(clock=self.clock)
        self.ledger = Ledger(portal=self.portal)
        self.rng = random.Random(self.seed ^ 0x5EED)
        for profile in PROFILES:
            home_of(self.root, profile).mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / "shared").mkdir(mode=0o700)
        trustme.CA().cert_pem.write_to_path(self.root.parent / "ca.pem")

    async def run(self, server: PortalServer, count: int, *, stop_at: int = 0) -> None:
        """Do `count` steps, or fewer when `stop_at` violations were seen."""
        self.url = server.url
        for number, step in zip(range(1, count + 1), steps(self.seed), strict=False):
            await self._step(number, step)
            if number % SETTLE_EVERY == 0 or number == count:
                await self._settle(number)
            self.done = number
            if stop_at and self.count >= stop_at:
                return

    def _violated(self, number: int, found: list[str], what: str) -> None:
        self.count += len(found)
        for line in found:
            self.report(number, line, what)

    async def _step(self, number: int, step: Step) -> None:
        self._prepare(step)
        before, files = look(self.root), copy_of(self.root)
        log_from = len(self.portal.log)
        results, trace = await self._perform(step)
        if step.power_cut and trace:
            cut_power(self.root, files, trace, self.rng)
            self.cuts += 1
        after = look(self.root)
        expect_heirs(self.ledger, before, results)
        found = violations(self.ledger, step, before, after, results, self.portal.log.entries[log_from:])
        self._violated(number, found, _told(step, results) + _changes(before, after))
        if after.broken:
            _mend(self.root, files)

    def _prepare(self, step: Step) -> None:
        self.clock.now += step.advance
        self.skew = self.skew if step.skew is None else step.skew
        self.portal.knobs.cohort_carried = step.cohort
        self.portal.knobs.auto_approve = step.ops[0].account if step.ops[0].device else ""
        self.portal.faults.clear()
        if step.fault is not None:
            self.portal.plant(Fault(**step.fault))
        if step.revoke:
            for family in self.portal.store.families:
                if family.account.email == step.revoke:
                    family.revoked = family.revoked or "by the soak"

    async def _perform(self, step: Step) -> tuple[list[Result], str]:
        """Do the operations: a lone one that nobody traces in a thread here, every other one in a process of its own."""
        lone = len(step.ops) == 1
        timed = lone and not self.tracer and step.kill is not None
        trace = self.tracer and lone and (step.kill is not None or step.power_cut or self.bug == "skip_fsync")
        if lone and not trace and not timed:
            request, target = self._request(step.ops[0])
            outcome = await asyncio.to_thread(perform, request)
            return [Result(op=step.ops[0], outcome=outcome, target=target)], ""
        started = [await asyncio.to_thread(self._start, op) for op in step.ops]
        if timed:
            process = started[0][1]
            asyncio.get_running_loop().call_later(self.rng.uniform(0.0, KILL_WITHIN), process.kill)
            result = await self._finish(*started[0])
            self.kills += "killed" in result.outcome
            return [result], ""
        if not trace:
            return list(await asyncio.gather(*(self._finish(*one) for one in started))), ""
        log = self.root.parent / "trace"
        process = started[0][1]
        assert process.pid is not None
        async with traced(process.pid, log, step.kill, self.bug):
            result = await self._finish(*started[0])
        self.kills += "killed" in result.outcome
        return [result], log.read_text(errors="replace")

    def _request(self, op: Op) -> tuple[Request, tuple[str, str]]:
        answer, target = self._answer(op)
        request = Request(
            name=op.name,
            home=home_of(self.root, op.profile),
            environ={
                "HOME": str(self.root.parent),
                "NEDURA_PORTAL_BASE_URL": self.url,
                "NEDURA_CA_BUNDLE": str(self.root.parent / "ca.pem"),  # one certificate loads faster than all
            },
            now=self.clock.now + self.skew,
            answer=answer,
            force=op.force,
            device=op.device,
            bug=self.bug,
        )
        return request, target

    def _start(self, op: Op) -> tuple[Op, BaseProcess, Connection, tuple[str, str]]:
        request, target = self._request(op)
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=child, args=(theirs, request))
        process.start()
        theirs.close()
        return op, process, ours, target

    def _answer(self, op: Op) -> tuple[dict[str, Any], tuple[str, str]]:
        if op.device:
            return {}, ("account", self.portal.store.account(op.account).sub)
        if op.name == "sign_in":
            family = self.portal.login(op.account)
            return token_set(self.portal, family, self.url), ("account", family.account.sub)
        if op.name == "mint":
            guest = self.portal.store.add_guest(*self.rng.sample(APPS, 2))
            return {"token": guest.token, "user_id": guest.user_id, "org_id": guest.org_id}, (
                "guest",
                guest.token,
            )
        return {}, ("none", "")

    async def _finish(
        self, op: Op, process: BaseProcess, connection: Connection, target: tuple[str, str]
    ) -> Result:
        connection.send("go")
        outcome = await asyncio.to_thread(_receive, process, connection)
        return Result(op=op, outcome=outcome, target=target)

    async def _settle(self, number: int) -> None:
        """Faults end and time passes: every record whose account is well must end now."""
        self.portal.faults.clear()
        self.skew = 0.0
        for _ in range(7):
            seen = look(self.root)
            waiting = {
                profile for (profile, _), record in seen.records.items() if record["state"] == "pending"
            }
            if not waiting:
                break
            self.clock.now += 6.1 * 3600
            for profile in sorted(waiting):
                await self._step(number, Step(ops=(Op(name="drain", profile=profile),)))
        self._violated(number, unfinished(self.ledger, look(self.root)), "settle")


def _told(step: Step, results: list[Result]) -> str:
    ops = ", ".join(
        f"{r.op.name}({r.op.profile or 'default'})={next(iter(r.outcome.items()))}" for r in results
    )
    return f"{ops} kill={step.kill} cut={step.power_cut} fault={step.fault} skew={step.skew}"


def _changes(before: Seen, after: Seen) -> str:
    """What changed on the disk, for a report; credentials as fingerprints."""

    def told(login: Login) -> str:
        return f"{login.kind} {login.name[-12:]} {fingerprint(login.refresh)[:6] if login.refresh else '-'}"

    rows = [("held", before.held, after.held)]
    rows += [(profile or "default", before.logins[profile], after.logins[profile]) for profile in PROFILES]
    lines = [f"{name}: {told(was)} -> {told(now)}" for name, was, now in rows]
    shared = {
        name: sorted(fingerprint(token)[:6] for token in tokens)
        for name, tokens in after.shared.items()
        if name.startswith("nas")
    }
    return "\n    " + "\n    ".join([*lines, f"shared: {shared}"])


def _receive(process: BaseProcess, connection: Connection) -> dict[str, str]:
    deadline = time.monotonic() + STUCK_SECONDS
    outcome: dict[str, str] = {"crash": "it got stuck"}
    try:
        if connection.poll(max(0.0, deadline - time.monotonic())):
            outcome = connection.recv()
    except (EOFError, ConnectionResetError):
        outcome = {"killed": "by a signal"}
    if "crash" in outcome:
        process.kill()
    process.join(10)
    connection.close()
    return outcome


def _mend(root: Path, files: dict[Path, bytes]) -> None:
    """Put back what was torn, so that one violation is not counted again in each later step."""
    for path, data in files.items():
        path.write_bytes(data)
    for path in root.rglob("*.json"):
        if path not in files and path.stat().st_size == 0:
            path.unlink()


_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", "tests.soak.operations"])  # else each child imports both anew
