"""The fleet version matrix and the reconciliation of planned runtimes: pure functions over collected rows (facts/update.md 8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

import attrs

from nedura.fleet.model import Fleet, MatrixRow, Runtime, RuntimeKind, Verdict
from nedura.installs import CodeIdentity

__all__ = [
    "Outcome",
    "RuntimeOutcome",
    "comes_back",
    "complete",
    "judge",
    "reconcile",
    "runs_expected",
    "unsettled",
    "with_failed",
]

Outcome = Literal["restarted", "stopped", "failed", "deferred", "unaccounted"]


def runs_expected(expected: CodeIdentity, code: CodeIdentity) -> bool | None:
    """Whether code is what it should be: by generation in a sealed install, by commit in a checkout (decision 39).

    None when one of them does not say.
    """
    if expected.generation:
        if code.generation:
            return code.generation == expected.generation
        return False if code.code_sha or code.code_version else None
    if expected.code_sha:
        if code.generation and not code.code_sha:
            return None
        return code.code_sha == expected.code_sha if code.code_sha else None
    if expected.code_version and code.code_version:
        return code.code_version == expected.code_version
    return None


def _row(runtime: Runtime, state: Verdict, *, pending: bool = False, note: str = "") -> MatrixRow:
    code = runtime.code
    return MatrixRow(
        profile=runtime.profile,
        pid=runtime.pid,
        state=state,
        install_id=code.install_id,
        generation=code.generation,
        code_sha=code.code_sha,
        code_version=code.code_version,
        kind=runtime.kind,
        home=runtime.home,
        source=runtime.source,
        served_profiles=runtime.served_profiles,
        identity_pending=pending,
        note=note or ("halted by a signal, serves nobody" if runtime.halted and state != "down" else ""),
    )


def _key(runtime: Runtime) -> tuple[int, int | None]:
    return runtime.pid, runtime.start_time


def _verdict(
    expected: CodeIdentity,
    runtime: Runtime,
    known: Collection[tuple[int, int | None]],
    pending: Collection[int],
) -> MatrixRow:
    code = runtime.code
    if expected.install_id and code.install_id and code.install_id != expected.install_id:
        return _row(runtime, "external")
    match runs_expected(expected, code):
        case True:
            return _row(runtime, "current")
        case None:
            nothing = not (code.code_sha or code.generation or code.code_version)
            return _row(runtime, "unknown", pending=nothing and _key(runtime) not in known)
        case False:
            if runtime.pid in pending:
                return _row(runtime, "restart_pending")
            return _row(runtime, "stale", note="draining" if runtime.state == "draining" else "")


def comes_back(gone: Runtime) -> bool:
    """Whether somebody starts a member again that had ended before we looked: its supervisor, or the watcher of the restart it was in.

    A gateway that a person had started by hand and that was killed stays away, whatever its file claims (facts/update.md 8.1: only what
    was alive when the update began can be down).
    """
    return gone.supervisor != "manual" or gone.detail.get("restart_requested") is True


def judge(
    expected: CodeIdentity,
    fleet: Fleet,
    *,
    before: Iterable[Runtime] = (),
    pending: Collection[int] = (),
) -> tuple[MatrixRow, ...]:
    """The version matrix.

    Args:
        expected: identity the fleet should have.
        fleet: what was collected now.
        before: runtimes that lived when the update began; only they can be down.
        pending: pids that accepted a restart and are not waited for (ancestors of the updater).
    """
    before = tuple(before)
    known = {_key(runtime) for runtime in before}
    rows = [_verdict(expected, runtime, known, pending) for runtime in fleet.runtimes]
    alive = {(runtime.kind, runtime.home) for runtime in fleet.runtimes}
    served = {name for runtime in fleet.runtimes for name in runtime.served_profiles}
    pids = {pid for pid, _ in known}
    rows += [
        _row(gone, "down")
        for gone in fleet.gone
        if gone.pid in pids and (gone.kind, gone.home) not in alive and gone.profile not in served
    ]
    return tuple(rows)


def unsettled(rows: Iterable[MatrixRow]) -> tuple[str, ...]:
    """Profiles that a verification still waits for: down, or alive without a published identity. What failed for good is not."""
    return tuple(
        row.profile for row in rows if not row.unsteady and (row.state == "down" or row.identity_pending)
    )


def with_failed(
    rows: Iterable[MatrixRow], failed: Iterable[Runtime], unsteady: Collection[tuple[RuntimeKind, Path]]
) -> tuple[MatrixRow, ...]:
    """The matrix after a roll: a member whose restart failed has a row even when its files say nothing, so that it stays owed.

    Args:
        rows: as judged.
        failed: members whose restart failed, as they were before it.
        unsteady: kind and home of those whose successor served and did not stay up: their row fails, whatever serves there now.
    """
    marked = [attrs.evolve(row, unsteady=(row.kind, row.home) in unsteady) for row in rows]
    seen = {(row.kind, row.home) for row in marked}
    served = {name for row in marked for name in row.served_profiles}
    for one in failed:
        key = (one.kind, one.home)
        if key not in seen and one.profile not in served:
            marked.append(attrs.evolve(_row(one, "down"), unsteady=key in unsteady))
    return tuple(marked)


def complete(rows: Iterable[MatrixRow], *, expected_rows: bool) -> bool:
    """Whether the fleet needs nothing more. No row although one is expected is incomplete (#93406).

    Args:
        rows: the matrix.
        expected_rows: something was restarted or killed, or gateways existed before.
    """
    rows = tuple(rows)
    if not rows:
        return not expected_rows
    return not any(row.failing for row in rows)


@attrs.frozen(kw_only=True)
class RuntimeOutcome:
    """What became of one planned runtime.

    Attributes:
        kind: what it served.
        profile: whose.
        pid: its pid in the plan.
        mechanism: how it was to be restarted.
        outcome: `unaccounted` keeps the restart owed.
        reason: why it was deferred or failed.
    """

    kind: str
    profile: str
    pid: int
    mechanism: str
    outcome: Outcome
    reason: str = ""

    @property
    def owed(self) -> bool:
        """Whether a restart is still owed."""
        return self.outcome in ("failed", "unaccounted")


def reconcile(
    planned: Iterable[Runtime],
    fleet: Fleet,
    *,
    failed: Mapping[int, str] | None = None,
    deferred: Mapping[int, str] | None = None,
    stopped: Collection[int] = (),
    unsteady: Collection[int] = (),
) -> tuple[RuntimeOutcome, ...]:
    """Account for every planned runtime, matched by home and incarnation, never by a unit's name (#110238).

    Args:
        planned: the runtimes of the plan.
        fleet: what lives now.
        failed: pid -> why its restart failed.
        deferred: pid -> why it restarts later (an ancestor, a desktop-owned backend).
        stopped: pids that were stopped on purpose without a successor.
        unsteady: failed pids whose successor did not stay up: whoever serves there now is no success.
    """
    failed, deferred = failed or {}, deferred or {}
    living = {_key(runtime) for runtime in fleet.runtimes}
    successors = {(runtime.kind, runtime.home): _key(runtime) for runtime in fleet.runtimes}
    outcomes = []
    for runtime in planned:
        outcome: Outcome
        if runtime.pid in unsteady and runtime.pid in failed:
            outcome, reason = "failed", failed[runtime.pid]
        else:
            outcome, reason = _account(runtime, living, successors, failed, deferred, stopped)
        outcomes.append(
            RuntimeOutcome(
                kind=runtime.kind,
                profile=runtime.profile,
                pid=runtime.pid,
                mechanism=runtime.restart_via,
                outcome=outcome,
                reason=reason,
            )
        )
    return tuple(outcomes)


def _account(
    runtime: Runtime,
    living: Collection[tuple[int, int | None]],
    successors: Mapping[tuple[RuntimeKind, Path], tuple[int, int | None]],
    failed: Mapping[int, str],
    deferred: Mapping[int, str],
    stopped: Collection[int],
) -> tuple[Outcome, str]:
    successor = successors.get((runtime.kind, runtime.home))
    if successor is not None and successor != _key(runtime) and successor[0] not in failed:
        return "restarted", ""
    if runtime.pid in failed:
        return "failed", failed[runtime.pid]
    if runtime.pid in deferred:
        return "deferred", deferred[runtime.pid]
    if runtime.restart_via == "desktop":
        return "deferred", "its desktop app restarts it"
    if runtime.pid in stopped and _key(runtime) not in living:
        return "stopped", ""
    return "unaccounted", ""
