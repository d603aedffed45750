"""What must hold after a kill, after the next launch, and after the next update: judged over collected facts, without IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

__all__ = ["EXITS", "Facts", "after_kill", "after_launch", "after_update", "ended_right"]

EXITS: Mapping[str, frozenset[int | None]] = {
    "": frozenset({0}),
    "kill tree": frozenset({None}),
    "kill parent": frozenset({None}),
    "kill child": frozenset({0}),
    "power": frozenset({None}),
    "sigint": frozenset({0, 130}),
    "full": frozenset({0, 1, 2}),
    "readonly": frozenset({0, 1, 2}),
    "eio": frozenset({0, 1, 2}),
}
"""Exit codes that a run may have, by what struck it (empty: nothing did); None: it was killed."""
_JUST_ENDED = 0.3
"""Seconds in which a run that was closed already may end without hearing Ctrl-C."""


@attrs.frozen(kw_only=True)
class Facts:
    """One look at a world.

    Attributes:
        current: generation that `current` names, empty when it names none.
        old, new: what it named before, and commit -> generation of the target (empty while there is none).
        damaged: files of the current generation that differ from its manifest.
        tail, debt: whether the obligations are armed.
        marker: pid in the update marker, 0 without one.
        alive: whether that pid lives.
        receipts: every archived receipt; unreadable ones as None.
        latest: `latest.json`, None when unreadable.
        members: profile -> (answers, generation).
        stores: store -> complaint, empty when it is well.
        edits: local edit -> whether it is where it must be.
        processes: leftover processes of the updater, as text.
        source: what is half done in the owner's checkout of a sealed install.
        stale_launcher: the launcher is not the one that this version publishes.
    """

    current: str
    old: str
    new: str
    damaged: tuple[str, ...] = ()
    tail: bool = False
    debt: bool = False
    marker: int = 0
    alive: bool = False
    receipts: Sequence[Mapping[str, Any] | None] = ()
    latest: Mapping[str, Any] | None = None
    members: Mapping[str, tuple[bool, str]] = attrs.field(factory=dict)
    stores: Mapping[str, str] = attrs.field(factory=dict)
    edits: Mapping[str, bool] = attrs.field(factory=dict)
    processes: Sequence[str] = ()
    source: Sequence[str] = ()
    stale_launcher: bool = False


def _always(facts: Facts) -> list[str]:
    found = []
    if facts.current not in {facts.old, facts.new} - {""}:
        found.append(
            f"current names {facts.current or 'nothing'}, neither {facts.old} nor {facts.new or 'a new one'}"
        )
    if facts.damaged:
        found.append(
            f"{len(facts.damaged)} files of {facts.current} differ from its manifest: {facts.damaged[0]}"
        )
    if any(receipt is None for receipt in facts.receipts):
        found.append("a receipt cannot be read")
    found += [f"{name}: {complaint}" for name, complaint in facts.stores.items() if complaint]
    found += [f"the local edit of {name} is lost" for name, there in facts.edits.items() if not there]
    return found


def _claims(facts: Facts, run: str | None) -> list[str]:
    """Nothing is claimed that did not happen."""
    found = []
    for receipt in facts.receipts:
        if receipt is None or (run is not None and receipt.get("update_id") != run):
            continue
        code = receipt.get("post_update") or {}
        moved = receipt.get("outcome") == "success" and receipt.get("committed_at")
        if moved and code.get("generation") == facts.new and facts.current != facts.new:
            found.append(f"receipt {receipt['update_id'][:8]} says success, but {facts.new} is not current")
    return found


def _has_done_all(receipt: Mapping[str, Any]) -> bool:
    """Whether a run has verified everything and owed nothing: all that was left is to tidy up."""
    done = {stage.get("name") for stage in receipt.get("stages") or () if stage.get("outcome") == "success"}
    return "verify" in done and not receipt.get("followups")


def after_kill(
    facts: Facts, *, before: Facts, run: str | None, cut: bool = False, ended: bool = False
) -> list[str]:
    """Right after the strike, with no repair.

    Args:
        facts: the look.
        before: the look before the struck run.
        run: id of the struck run, None when it never wrote a receipt.
        cut: the power was cut: nobody runs, so nobody runs old code.
        ended: the run reported success itself; its receipt may be what the disk refused.
    """
    found = [*_always(facts), *_claims(facts, run)]
    moved = facts.current == facts.new != before.current
    receipts = [one for one in facts.receipts if one is not None and one.get("update_id") == run]
    closed = ended or any(
        one.get("outcome") not in (None, "running") or _has_done_all(one) for one in receipts
    )
    members = {} if cut else facts.members
    stale = [
        name
        for name, (_, generation) in members.items()
        if generation != facts.current and (moved or before.members[name][0])  # else it was down before
    ]
    if (moved or before.tail) and not closed and not facts.tail:
        how = "the code moved" if moved else "it was not finished before"
        found.append(f"{how}, the run is not closed, and the tail is not owed")
    if stale and not facts.debt:
        found.append(
            f"{facts.current} is current, {', '.join(stale)} run another one, and no restart is owed"
        )
    return found


def ended_right(
    kind: str,
    code: int | None,
    *,
    moved: bool,
    there: bool,
    receipt: Mapping[str, Any] | None,
    at: float,
    said: str,
) -> list[str]:
    """Whether the struck run's exit code tells the truth.

    Args:
        kind: what struck it, empty for nothing.
        code: exit code, None when it was killed.
        moved: whether what runs became another one.
        there: whether it was the target already.
        receipt: of that run.
        at: unix seconds of the strike.
        said: what it printed.
    """
    found: list[str] = []
    if kind == "sigint" and '{"kind"' not in said and code in (1, 130, -2):
        return found  # Python itself was still starting: it has no words for that but its own
    if kind == "sigint" and code == -2:
        code = 130  # what a shell says of a process that SIGINT ended
    if code not in EXITS[kind]:
        found.append(f"exit code {code}: {said[-300:]}")
    elif kind in ("full", "readonly", "eio") and moved and code != 0:
        found.append(f"the code moved, but the exit code is {code}: {said[-300:]}")
    elif kind in ("full", "readonly", "eio") and not moved and not there and code == 0:
        found.append(f"exit code 0, but the code did not move: {said[-300:]}")
    elif kind == "sigint" and code == 0 and _end_of(receipt) > at + _JUST_ENDED:
        found.append(f"Ctrl-C came {_end_of(receipt) - at:.1f} s before the end and was not heeded")
    elif kind == "sigint" and code == 130 and receipt is not None and receipt.get("outcome") != "interrupted":
        found.append(f"exit code 130, but its receipt says {receipt.get('outcome')}")
    if code is not None and "Traceback (most recent call last)" in said:  # who is killed may be cut short
        found.append(f"a traceback: {said[said.index('Traceback') :][-400:]}")
    return found


def _end_of(receipt: Mapping[str, Any] | None) -> float:
    """When a run was closed, in unix seconds; 0 when it says nothing."""
    text = str((receipt or {}).get("finished_at") or "")
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def after_launch(facts: Facts) -> list[str]:
    """After one launch: a torn tree is whole now, and nothing else got worse.

    Args:
        facts: the look.
    """
    return [*_always(facts), *_claims(facts, None)]


def after_update(facts: Facts, *, code: int, kills: int, restarted: int) -> list[str]:
    """After one launch and one more update.

    Args:
        facts: the look.
        code: exit code of that update.
        kills: kills so far in this world.
        restarted: members that a second rerun restarted.
    """
    found = [*_always(facts), *_claims(facts, None)]
    if code != 0:
        found.append(f"the next update exits {code}")
    if facts.current != facts.new:
        found.append(f"the next update leaves {facts.current} current instead of {facts.new}")
    if facts.marker:
        found.append(f"the update marker is left behind (pid {facts.marker})")
    if facts.tail or facts.debt:
        found.append(f"still owed: {'tail ' if facts.tail else ''}{'restart' if facts.debt else ''}".strip())
    if facts.stale_launcher and not facts.tail:
        found.append("the launcher was not published, and no follow-up owes it")
    for name, (answers, generation) in facts.members.items():
        if not answers:
            found.append(f"{name} does not answer")
        elif generation != facts.new:
            found.append(f"{name} runs {generation or 'unknown code'} instead of {facts.new}")
    interrupted = sum(1 for r in facts.receipts if r is not None and r.get("outcome") == "interrupted")
    if interrupted > kills:
        found.append(f"{interrupted} interrupted receipts after {kills} kills")
    if any(receipt is not None and receipt.get("outcome") == "running" for receipt in facts.receipts):
        found.append("a receipt still says running")
    if facts.latest is None or facts.latest.get("outcome") != "success":
        found.append("latest.json is not the successful run")
    if restarted:
        found.append(f"a second rerun restarted {restarted} members")
    if facts.source:
        found.append(f"the owner's checkout is left half moved: {facts.source[0]}")
    if facts.processes:
        found.append(f"left running: {facts.processes[0]}")
    return found
