"""The one mutable thing of an update: what its stages hand on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nedura.clock import Clock
from nedura.installs import CodeIdentity, InstallPaths
from nedura.product import NEDURA, Product
from nedura.update.options import UpdateOptions

if TYPE_CHECKING:
    from nedura.update.planning.plan import Plan
    from nedura.update.prompt import Ask

__all__ = ["Candidate", "Layout", "Run"]

Layout = Literal["sealed", "checkout", "zip"]


@attrs.frozen(kw_only=True)
class Candidate:
    """What prepare built aside and commit makes current.

    Attributes:
        layout: how the install runs its code.
        identity: what a member on this code will state about itself.
        folder: sealed: the generation's folder; checkout: the folder that holds the tree built aside for validation.
        tree: the tree built aside.
        python: the interpreter that runs it, environment included.
        inputs: hash of everything it was made from (decision 40); a failed one is remembered by it.
        target: commit id that commit moves to.
        parked: ids or names of local edits that were not carried (decision 41).
    """

    layout: Layout
    identity: CodeIdentity
    folder: Path
    tree: Path
    python: Path
    inputs: str = ""
    target: str = ""
    parked: tuple[str, ...] = ()


@attrs.define(kw_only=True)
class Run:
    """State of one update. Stages read it and set what they found out; the receipt is made from events, never from here.

    Attributes:
        run_id: id of the run, of its receipt and of its obligations.
        root_home: root home of the install.
        home: the invoking profile's home.
        product, options, environ, clock: the caller's.
        started_at: unix seconds.
        install: the install, None until admission knows it (or when there is none).
        layout: how the install runs its code.
        before: identity of the code that was current when the run began.
        plan: the plan, once made.
        candidate: what prepare built, None before.
        changed: whether the candidate differs from what is current.
        snapshots: profile -> snapshot id of this run.
        checkout: the owner's checkout, when there is one.
        committed: the commit point is behind us and was not taken back.
        previous: what `current` named before this run's commit; None before it.
        lock_fds: descriptors of held locks that children must inherit.
        followups: steps still owed.
        user_action: step only the user can finish.
        notes: free facts that stages of one area hand to each other, by area.
        ask: asks the person who watches; None when nobody does.
    """

    run_id: str
    root_home: Path
    home: Path
    clock: Clock
    started_at: float
    environ: Mapping[str, str]
    product: Product = NEDURA
    options: UpdateOptions = attrs.field(factory=UpdateOptions)
    install: InstallPaths | None = None
    layout: Layout = "sealed"
    before: CodeIdentity = attrs.field(factory=CodeIdentity)
    plan: Plan | None = None
    candidate: Candidate | None = None
    changed: bool = False
    snapshots: dict[str, str] = attrs.field(factory=dict)
    checkout: Path | None = None
    committed: bool = False
    previous: Path | None = None
    lock_fds: tuple[int, ...] = ()
    followups: list[str] = attrs.field(factory=list)
    user_action: str = ""
    notes: dict[str, Any] = attrs.field(factory=dict)
    ask: Ask | None = None
