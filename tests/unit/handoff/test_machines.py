"""Two runners and three profiles against one portal, in every order, with crashes between any two writes."""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nedura.clock import iso
from nedura.signin.handoff_rules import (
    MAX_ATTEMPTS,
    Record,
    Reply,
    State,
    is_due,
    lease,
    note,
    pruned,
    read_reply,
    settle,
)
from nedura.signin.renewal import Meaning, Need, adopted, next_step, read_refresh, rotated, stamped
from nedura.signin.shared import after_write, newest_for
from nedura.signin.tokens import fingerprint

NOW = 1_800_000_000.0
BODIES = [
    None,
    {},
    {"error": "not_found"},
    {"error": "busy"},
    {"error": "unknown_token"},
    {"error": "account_locked"},
]


@attrs.define
class Runner:
    """One process: the record it leased, and whether its request is at the server."""

    sent: Record | None = None
    reply: Reply | None = None


class Handoffs(RuleBasedStateMachine):
    """Records on one disk; each rule is one atomic write or one request. A crash forgets a runner."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: tuple[Record, ...] = ()
        self.now = NOW
        self.runners = [Runner(), Runner()]
        self.moved_to: dict[str, str] = {}
        self.requests: dict[str, int] = {}
        self.flying: dict[str, float] = {}
        self.claimed: dict[str, Record] = {}

    @initialize()
    def begin(self) -> None:
        self.sign_in("anon_a", "u1")

    @rule(token=st.sampled_from(["anon_a", "anon_b"]), account=st.sampled_from(["u1", "u2"]))
    def sign_in(self, token: str, account: str) -> None:
        known = next(
            (record for record in self.disk if record.token and record.token.reveal() == token), None
        )
        known = known or next((record for name, record in self.claimed.items() if name == token), None)
        fresh = note(known, token=token, portal="https://p", guest="g", account=account, now=self.now)
        if fresh is not None:
            self.disk = pruned((*(record for record in self.disk if record.id != fresh.id), fresh))
            self.requests[fresh.id] = 0

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0, 61.0, 601.0, 3601.0, 21601.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=st.integers(0, 1), account=st.sampled_from(["u1", "u2"]))
    def take(self, who: int, account: str) -> None:
        runner = self.runners[who]
        if runner.sent is not None:
            return
        due = next((r for r in self.disk if is_due(r, self.now) and r.account_sub == account), None)
        if due is None:
            return
        leased = lease(due, self.now)
        self.disk = pruned(leased if record is due else record for record in self.disk)
        if leased.open:
            # The lease is longer than any request lives, so nobody else's can still be under way.
            assert self.flying.get(leased.id, -1e18) <= self.now
            self.flying[leased.id] = self.now + 20
            runner.sent = leased

    @precondition(lambda self: any(runner.sent and not runner.reply for runner in self.runners))
    @rule(body=st.sampled_from(BODIES), lost=st.booleans())
    def answer(self, body: Any, lost: bool) -> None:
        runner = next(r for r in self.runners if r.sent and not r.reply)
        assert runner.sent is not None
        if self.flying.get(runner.sent.id, 0) < self.now:  # its deadline is over, the request is gone
            runner.reply = Reply(code="timeout")
            return
        self.requests[runner.sent.id] = self.requests.get(runner.sent.id, 0) + 1
        assert runner.sent.token is not None
        name = runner.sent.token.reveal()
        if body is None and name not in self.moved_to:
            self.moved_to[name] = runner.sent.account_sub
            body = {"status": "claimed", "connectors": []}
        elif name in self.moved_to:
            body = {"error": "unknown_token"}
        runner.reply = Reply(code="lost") if lost else read_reply(body)

    @precondition(lambda self: any(runner.reply for runner in self.runners))
    @rule()
    def write_answer(self) -> None:
        runner = next(r for r in self.runners if r.reply)
        assert runner.sent is not None
        assert runner.reply is not None
        after = settle(self.disk, runner.sent, runner.reply, self.now)
        self.disk = pruned(after if record.id == after.id else record for record in self.disk)
        if after.state is State.CLAIMED and runner.sent.token is not None:
            self.claimed[runner.sent.token.reveal()] = after
        if not after.open:  # answered for good; the same token signed in again is a new record of the same id
            self.flying.pop(after.id, None)
        self.runners[self.runners.index(runner)] = Runner()

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.runners[who] = Runner()

    @invariant()
    def counted(self) -> None:
        for record in self.disk:
            assert self.requests.get(record.id, 0) <= record.attempts <= MAX_ATTEMPTS
            assert (record.token is None) == (not record.open)

    @invariant()
    def claimed_stays_claimed(self) -> None:
        for record in self.claimed.values():
            now = next((one for one in self.disk if one.id == record.id), record)
            assert now.state is State.CLAIMED


TestHandoffs = Handoffs.TestCase
TestHandoffs.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


class Refreshes(RuleBasedStateMachine):
    """Three profiles share accounts; every rule is one refresh that may end at any write. No token is ever sent twice."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.skew = 0.0
        self.profiles: list[dict[str, Any] | None] = [None, None, None]
        self.shared: dict[str, Any] | None = None
        self.spent: list[str] = []
        self.sent: set[str] = set()
        self.current: dict[str, str] = {}
        self.number = 0

    def _tokens(self, sub: str) -> dict[str, Any]:
        self.number += 1
        claims = {"sub": sub, "exp": self.now + 900, "scope": "inference:invoke", "n": self.number}
        access = "h." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + ".s"
        return {"access_token": access, "refresh_token": f"R{self.number}"}

    @rule(profile=st.integers(0, 2), sub=st.sampled_from(["u1", "u2"]))
    def sign_in(self, profile: int, sub: str) -> None:
        clock = self.now + self.skew
        entry = {
            "auth_method": "oauth_device_code",
            **self._tokens(sub),
            "obtained_at": iso(clock),
            "expires_at": iso(clock + 900),
        }
        entry = stamped(entry, self.profiles[profile], newest_for(self.shared, sub))
        self.current[entry["refresh_token"]] = sub
        write = after_write(self.shared, entry, renewal=False, now=clock)
        self.shared = write.document or self.shared
        self.profiles[profile] = entry

    @rule(skew=st.sampled_from([0.0, -1e6, 3600.0, -3600.0]), seconds=st.sampled_from([1.0, 500.0, 1000.0]))
    def pass_time(self, skew: float, seconds: float) -> None:
        self.skew, self.now = skew, self.now + seconds

    @rule(
        profile=st.integers(0, 2),
        force=st.booleans(),
        answer=st.sampled_from(["ok", "lost", "committed_lost", "busy", "ended"]),
        stop=st.integers(0, 4),
    )
    def refresh(self, profile: int, force: bool, answer: str, stop: int) -> None:
        entry, clock = self.profiles[profile], self.now + self.skew
        sub = {"u1": "u1", "u2": "u2"}.get(_sub(entry), "")
        plan = next_step(entry, newest_for(self.shared, sub), self.spent, clock, force=force)
        if entry is None or plan.entry is None:
            return
        if plan.need is Need.ADOPT:
            self.profiles[profile] = adopted(entry, plan.entry)
        elif plan.need is Need.LOST:
            self.profiles[profile] = {name: value for name, value in entry.items() if name != "refresh_token"}
        elif plan.need is Need.REDEEM:
            self._redeem(profile, adopted(entry, plan.entry), answer, stop)

    def _redeem(self, profile: int, entry: dict[str, Any], answer: str, stop: int) -> None:
        token, clock = entry["refresh_token"], self.now + self.skew
        self.spent.append(fingerprint(token))
        if stop == 0:
            return  # killed before the request left
        assert token not in self.sent, "a token was sent twice"
        if answer in ("busy",):
            self.spent.remove(fingerprint(token))
            return
        self.sent.add(token)
        if answer in ("lost", "committed_lost") or stop == 1:
            return
        body = {"error": "invalid_grant"} if answer == "ended" else self._tokens(_sub(entry))
        reply = read_refresh(400 if answer == "ended" else 200, body)
        if reply.meaning is Meaning.ENDED:
            self.profiles[profile] = {"last_auth_error": {}}
            return
        times = {"obtained_at": iso(clock), "expires_at": iso(clock + 900)}
        fresh = rotated(entry, reply.fields, times, "")
        assert fresh is not None
        if stop == 2:
            return  # killed between the answer and the first write
        self.shared = after_write(self.shared, fresh, renewal=True, now=clock).document or self.shared
        if stop == 3:
            return  # killed between the two stores
        self.profiles[profile] = fresh


def _sub(entry: dict[str, Any] | None) -> str:
    if not entry or not entry.get("access_token"):
        return ""
    part = entry["access_token"].split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["sub"])


TestRefreshes = Refreshes.TestCase
TestRefreshes.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
