"""Verdicts, reconciliation and what counts as incomplete, over collected rows."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from nedura.fleet.matrix import complete, judge, reconcile, runs_expected, unsettled
from nedura.fleet.model import Fleet, Runtime, restart_via
from nedura.fleet.verify import settle_deadline
from nedura.installs import CodeIdentity

NEW = CodeIdentity(install_id="a" * 12, generation="000002", code_sha="2" * 40, code_version="2.0")
OLD = CodeIdentity(install_id="a" * 12, generation="000001", code_sha="1" * 40, code_version="1.0")
OTHER = CodeIdentity(install_id="b" * 12, code_sha="3" * 40)
CHECKOUT_NEW = attrs.evolve(NEW, generation="")
CHECKOUT_OLD = attrs.evolve(OLD, generation="")


def runtime(profile: str = "default", pid: int = 10, code: CodeIdentity = NEW, **more: object) -> Runtime:
    base = Runtime(
        kind="gateway",
        profile=profile,
        pid=pid,
        start_time=pid * 10,
        home=Path("/h") / profile,
        code=code,
        state="running",
    )
    return attrs.evolve(base, **more)  # type: ignore[arg-type]


def test_each_verdict() -> None:
    fleet = Fleet(
        runtimes=(
            runtime("a", 1, NEW),
            runtime("b", 2, OLD),
            runtime("c", 3, CodeIdentity()),
            runtime("d", 4, OTHER),
            runtime("e", 5, OLD, ancestor=True),
        ),
        gone=(runtime("f", 6, OLD),),
    )
    before = [runtime("f", 6, OLD), runtime("c", 30, OLD)]
    rows = {row.profile: row for row in judge(NEW, fleet, before=before, pending={5})}
    assert {name: row.state for name, row in rows.items()} == {
        "a": "current", "b": "stale", "c": "unknown", "d": "external", "e": "restart_pending", "f": "down",
    }  # fmt: skip
    assert rows["c"].identity_pending
    assert {name for name, row in rows.items() if row.failing} == {"b", "f"}
    assert unsettled(rows.values()) == ("c", "f")
    assert "STALE" in rows["b"].copy_terminal
    assert "(pid" not in rows["f"].copy_terminal


def test_the_old_process_without_an_identity_is_unknown_and_not_pending() -> None:
    known = runtime("c", 3, CodeIdentity())
    (row,) = judge(NEW, Fleet(runtimes=(known,)), before=[known])
    assert (row.state, row.identity_pending) == ("unknown", False)


@pytest.mark.parametrize(
    ("expected", "code", "verdict"),
    [
        (NEW, NEW, True),
        (NEW, OLD, False),
        (NEW, attrs.evolve(NEW, code_sha="9" * 40), True),  # sealed: the generation counts
        (NEW, CHECKOUT_NEW, False),
        (NEW, CodeIdentity(), None),
        (CHECKOUT_NEW, CHECKOUT_NEW, True),
        (CHECKOUT_NEW, CHECKOUT_OLD, False),
        (CHECKOUT_NEW, CodeIdentity(), None),
        (CodeIdentity(code_version="2"), CodeIdentity(code_version="1"), False),
        (CodeIdentity(), NEW, None),
    ],
)
def test_runs_expected(expected: CodeIdentity, code: CodeIdentity, verdict: bool | None) -> None:
    assert runs_expected(expected, code) is verdict


def test_a_dead_process_that_was_dead_before_or_has_a_successor_has_no_row() -> None:
    gone = runtime("f", 6, OLD)
    assert judge(NEW, Fleet(gone=(gone,))) == ()
    back = Fleet(runtimes=(runtime("f", 7, NEW),), gone=(gone,))
    assert [row.state for row in judge(NEW, back, before=[gone])] == ["current"]
    served = Fleet(runtimes=(runtime("default", 8, NEW, served_profiles=("f",)),), gone=(gone,))
    assert [row.profile for row in judge(NEW, served, before=[gone])] == ["default"]


def test_no_row_although_one_is_expected_is_incomplete() -> None:
    assert complete((), expected_rows=False)
    assert not complete((), expected_rows=True)


def test_reconciliation_goes_by_home_and_incarnation() -> None:
    planned = [
        runtime("a", 1, unit="nedura-gateway-1a2b.service", supervisor="systemd", restart_via="systemd"),
        runtime("b", 2),
        runtime("c", 3),
        runtime("d", 4),
        runtime("e", 5, kind="serve", supervisor="desktop", restart_via="desktop"),
        runtime("f", 6),
    ]
    fleet = Fleet(runtimes=(runtime("a", 11), runtime("c", 3), runtime("e", 5, kind="serve")))
    outcomes = reconcile(planned, fleet, failed={2: "timeout"}, deferred={3: "an ancestor"}, stopped={4})
    assert [(row.profile, row.outcome) for row in outcomes] == [
        ("a", "restarted"), ("b", "failed"), ("c", "deferred"), ("d", "stopped"), ("e", "deferred"), ("f", "unaccounted"),
    ]  # fmt: skip
    assert [row.profile for row in outcomes if row.owed] == ["b", "f"]


def test_an_empty_plan_owes_nothing() -> None:
    assert reconcile([], Fleet()) == ()


def test_a_backend_never_borrows_a_gateways_outcome() -> None:
    serve = runtime("a", 1, kind="serve")
    (row,) = reconcile([serve], Fleet(runtimes=(runtime("a", 2),)))
    assert row.outcome == "unaccounted"


@pytest.mark.parametrize(
    ("supervisor", "via"),
    [
        ("systemd", "systemd"),
        ("manual-serve", "respawn-argv"),
        ("desktop", "desktop"),
        ("nobody-knows", "manual"),
    ],
)
def test_restart_via_comes_from_one_table(supervisor: str, via: str) -> None:
    assert restart_via(supervisor) == via
    made = Runtime(kind="gateway", profile="a", pid=1, start_time=1, home=Path("/h"), supervisor=supervisor)
    assert made.restart_via == via


def test_the_deadline_follows_the_slowest_boot() -> None:
    assert settle_deadline([]) == 120
    assert settle_deadline([runtime(boot_s=100.0), runtime(boot_s=2.0)]) == 300
