"""What a soak does, as data, from a seed. No IO."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import attrs

PROFILES: Final = ("", "p1", "p2", "p3", "p4")
"""The root profile and four named ones."""

ACCOUNTS: Final = ("alice@example.test", "bob@example.test", "carol@example.test")
APPS: Final = ("gmail", "notion:reconnect", "slack", "jira")
SETTLE_EVERY: Final = 50

_OPS: Final = {
    "sign_in": 6,
    "mint": 5,
    "sign_out": 3,
    "adopt": 3,
    "import": 2,
    "refresh": 6,
    "drain": 4,
    "tick": 5,
}
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"route": "token.refresh", "commit": True, "drop": True},
    {"route": "token.refresh", "drop": True},
    {"route": "token.refresh", "commit": True, "status": 200, "body": "html"},
    {"route": "token.refresh", "status": 429, "error": "slow_down", "headers": {"retry-after": "30"}},
    {"route": "token.refresh", "status": 503, "body": "html"},
    {"route": "token.refresh", "status": 502, "body": "empty"},
    {
        "route": "token.refresh",
        "status": 307,
        "body": "empty",
        "headers": {"location": "http://127.0.0.1:1/"},
    },
    {"route": "anon.claim", "commit": True, "drop": True},
    {"route": "anon.claim", "drop": True},
    {
        "route": "anon.claim",
        "status": 503,
        "error": "temporarily_unavailable",
        "headers": {"retry-after": "120"},
    },
    {"route": "anon.claim", "status": 404, "error": "not_found"},
    {"route": "anon.claim", "status": 500, "body": "html", "times": 2},
    {"route": "anon.claim", "commit": True, "status": 200, "body": "array"},
    {"route": "anon.claim", "error": "client_not_allowed"},
)


@attrs.frozen(kw_only=True)
class Op:
    """One thing that a process does to a profile.

    Attributes:
        name: sign_in, mint, sign_out, adopt, import, refresh, drain or tick.
        profile: whose.
        account: e-mail for a sign-in.
        force: for a refresh.
        device: a sign-in through the whole device login, else the save alone.
    """

    name: str
    profile: str
    account: str = ""
    force: bool = False
    device: bool = False


@attrs.frozen(kw_only=True)
class Kill:
    """SIGKILL at the n-th call of a kind; without a tracer after a random while."""

    call: str
    number: int


@attrs.frozen(kw_only=True)
class Step:
    """One step: what changes around the processes, then what they do, at the same time.

    Attributes:
        ops: done concurrently, each in a process of its own.
        kill: kills the first of them.
        power_cut: afterwards the disk forgets what was not synced.
        advance: seconds that pass first.
        skew: how far the clients' wall clock is off the portal's from now on; None leaves it.
        fault: planted at the portal first.
        revoke: account whose logins the portal ends first.
        cohort: claims carry the cohort.
    """

    ops: tuple[Op, ...]
    kill: Kill | None = None
    power_cut: bool = False
    advance: float = 0.0
    skew: float | None = None
    fault: dict[str, Any] | None = None
    revoke: str = ""
    cohort: bool = False


def steps(seed: int) -> Iterator[Step]:
    """An endless plan: single random steps, and short stories whose parts matter to each other. The same seed, the same plan."""
    rng = random.Random(seed)
    while True:
        if rng.random() < 0.12:
            yield from _story(rng)
        else:
            count = rng.choices((1, 2, 3), (7, 2, 1))[0]
            yield _step(rng, tuple(_op(rng) for _ in range(count)))


def _step(rng: random.Random, ops: tuple[Op, ...], *, hurt: bool = True, **fixed: Any) -> Step:
    traced = hurt and len(ops) == 1
    if len(ops) == 1 and ops[0].name == "sign_in" and rng.random() < 0.4:
        ops = (attrs.evolve(ops[0], device=True),)
    kill = None
    if traced and rng.random() < 0.35:
        kill = Kill(call=rng.choice(("fsync", "rename")), number=rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 9)))
    step = Step(
        ops=ops,
        kill=kill,
        power_cut=traced and (rng.random() < (0.6 if kill else 0.15)),
        advance=rng.choice((0.0, 1.0, 31.0, 65.0, 400.0, 900.0, 4000.0, 22000.0)),
        skew=rng.choice((0.0, 0.0, -3600.0, 3600.0, -86400.0, 7 * 86400.0)) if rng.random() < 0.12 else None,
        fault=_fault(rng, ops[0]) if rng.random() < 0.35 else None,
        revoke=rng.choice(ACCOUNTS) if rng.random() < 0.02 else "",
        cohort=rng.random() < 0.1,
    )
    return attrs.evolve(step, **fixed)


def _story(rng: random.Random) -> Iterator[Step]:
    """A few steps on one or two profiles that random ones seldom line up."""
    one, other = rng.sample(PROFILES, 2)
    first, second = rng.sample(ACCOUNTS, 2)
    lost = {"route": "anon.claim", "drop": True}
    parts: list[tuple[tuple[Op, ...], dict[str, Any]]]
    if rng.random() < 0.6:  # a move that did not end before somebody else signs in
        parts = [
            ((Op(name="sign_out", profile=""),), {}),  # else a named profile still reads the root's account
            ((Op(name="sign_out", profile=one),), {}),
            ((Op(name="mint", profile=one),), {}),
            ((Op(name="sign_in", profile=one, account=first),), {"fault": lost}),
            ((Op(name="sign_in", profile=one, account=second),), {"advance": 1.0}),
            (
                (Op(name="drain", profile=one), Op(name="drain", profile=one)),
                {"advance": 65.0, "fault": None},
            ),
        ]
    else:  # siblings on one account, and a rotation that only one of them saw
        both = (Op(name="refresh", profile=one, force=True), Op(name="refresh", profile=other, force=True))
        parts = [
            ((Op(name="sign_in", profile=one, account=first),), {}),
            ((Op(name="sign_in", profile=other, account=rng.choice((first, second))),), {}),
            ((both[0],), {}),
            (both, {"advance": 1000.0}),
            ((both[1],), {}),
        ]
    hurt = rng.randrange(2 * len(parts))  # at most one part is killed or cut, so that the story goes on
    for number, (ops, fixed) in enumerate(parts):
        yield _step(rng, ops, hurt=number == hurt, **{"skew": None, "revoke": "", **fixed})


def _op(rng: random.Random) -> Op:
    name = rng.choices(list(_OPS), list(_OPS.values()))[0]
    return Op(
        name=name,
        profile=rng.choice(PROFILES),
        account=rng.choice(ACCOUNTS) if name == "sign_in" else "",
        force=name == "refresh" and rng.random() < 0.6,
    )


def _fault(rng: random.Random, op: Op) -> dict[str, Any]:
    """A fault on a route that the operation is likely to use."""
    route = "token.refresh" if op.name in ("refresh", "tick") else "anon.claim"
    return dict(rng.choice([fault for fault in _FAULTS if fault["route"] == route]))
