"""What a move of a checkout knows, and what it has found out so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from nedura.installs import CodeIdentity
from nedura.product import NEDURA, Product
from nedura.update.commit.move import Move
from nedura.update.commit.rules import Strategy
from nedura.update.commit.stash import Parked
from nedura.update.source.git import Git
from nedura.update.source.source_git import SourceGit
from nedura.wire import Event

__all__ = ["CheckoutJob", "Progress"]


@attrs.frozen(kw_only=True)
class CheckoutJob:
    """What a move of a checkout needs to know.

    Attributes:
        git: the neutralised runner of the checkout.
        common_dir: the repository's folder.
        target: commit id to move to.
        target_branch: branch that is followed, empty for a release commit.
        now: unix seconds.
        repo: our repository that holds the target's objects; None when the checkout has them.
        product: names.
        home: the root home, to keep product state out of anything that is parked.
        python: interpreter for the import check of restored edits; None leaves it out.
        before, after: identity of the code before, and of the target.
        strategy, auto_switch: what to do about another branch.
        keep_stash: leave edits parked.
        local_changes: `stash` or `discard`.
        interactive: a person is asked.
        environ: where children's variables come from.
        arrived: told the commit id that HEAD has after a whole move, in the thread that made it: a merge has one of its own.
    """

    git: SourceGit
    common_dir: Path
    target: str
    target_branch: str
    now: float
    repo: Git | None = None
    product: Product = NEDURA
    home: Path | None = None
    python: Path | None = None
    before: CodeIdentity = attrs.field(factory=CodeIdentity)
    after: CodeIdentity = attrs.field(factory=CodeIdentity)
    strategy: Strategy = "switch"
    auto_switch: bool = True
    keep_stash: bool = False
    local_changes: str = "stash"
    interactive: bool = False
    environ: Mapping[str, str] = attrs.field(factory=dict)
    arrived: Callable[[str], None] = lambda _: None

    @property
    def checkout(self) -> Path:
        """The tree."""
        return Path(self.git.checkout)


@attrs.define
class Progress:
    """What a move has found out so far.

    Attributes:
        events: what is still to be told.
        parked: the stash entry of this run.
        step: the move, once it is whole.
    """

    events: list[Event] = attrs.field(factory=list)
    parked: Parked | None = None
    step: Move | None = None

    def tell(self, *events: Event) -> None:
        """Events for whoever listens, in their order."""
        self.events += events
