"""What must be durable before the first file moves: the tail, the restart record, the move marker, in this order (facts/update.md 5.5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from nedura.clock import iso
from nedura.errors import StoreError, UpdateError
from nedura.homes import profile_name
from nedura.installs import RELEASE, InstallPaths, checkout_head, running_code
from nedura.records import remove, write_json
from nedura.update.ledger.obligations import RestartObligation, TailObligation, restart_folder
from nedura.update.ledger.owner import myself
from nedura.update.run import Run
from nedura.update.source.torn import is_torn

__all__ = ["Armed", "arm", "debt_of", "owed_inventory", "paths_of", "tail_of"]


def paths_of(run: Run) -> InstallPaths:
    """The install's places; admission has set it.

    Raises:
        UpdateError: there is no install.
    """
    if run.install is None:
        raise UpdateError("There is no install here to update.", stop_class="no_install")
    return run.install


def tail_of(run: Run) -> TailObligation:
    """The install's tail obligation."""
    return TailObligation(paths_of(run).folder)


def debt_of(run: Run) -> RestartObligation:
    """The install's restart record."""
    paths = paths_of(run)
    shared = paths.folder if run.layout == "sealed" or run.checkout is None else run.checkout
    return RestartObligation(restart_folder(run.environ, run.product), shared, paths.root_home)


def owed_inventory(run: Run) -> list[dict[str, object]] | None:
    """The gateways that will owe a restart, from the plan; None when nobody could say."""
    if run.plan is None or "fleet" in run.plan.unreadable:
        return None
    return [
        {"kind": one.kind, "profile": one.profile, "pid": one.pid, "supervisor": one.supervisor}
        for one in run.plan.runtimes
        if one.kind == "gateway"
    ]


@attrs.define
class Armed:
    """What one commit armed, and how to give it back."""

    marker: Path | None
    undo: list[Callable[[], None]] = attrs.field(factory=list)

    def hand_back(self) -> None:
        """Put everything back exactly as it was found, last first. What cannot be given back stays armed."""
        for step in reversed(self.undo):
            try:
                step()
            except StoreError:
                continue
        self.undo.clear()

    def moved(self, run: Run) -> bool:
        """Whether the pointer names the candidate although the commit did not say so."""
        if run.layout == "checkout" and run.checkout is not None:
            return is_torn(
                str(run.checkout)
            )  # a move that could not be undone stays owed until a launch has mended it
        if run.layout == "zip" and run.checkout is not None and run.candidate is not None:
            from nedura.update.commit.zip_swap import is_half_swapped  # only an unpacked release needs it

            if is_half_swapped(run.checkout):
                return True  # likewise
            return running_code(run.checkout / RELEASE).code_sha == run.candidate.target
        if run.layout != "sealed" or run.candidate is None:
            return False
        try:
            return paths_of(run).pointed() == run.candidate.folder
        except StoreError:
            return True  # cannot be told: what is armed stays armed

    def arrived(self, run: Run) -> bool:
        """Whether the move is whole: what runs from now on is the candidate."""
        candidate = run.candidate
        if candidate is None:
            return False
        if run.layout == "checkout" and run.checkout is not None:
            head = checkout_head(run.checkout)
            return head == candidate.target != run.before.code_sha and not is_torn(str(run.checkout))
        if run.layout == "zip" and run.checkout is not None:
            from nedura.update.commit.zip_swap import is_half_swapped  # as above

            now = running_code(run.checkout / RELEASE).code_sha
            return now == candidate.target != run.before.code_sha and not is_half_swapped(run.checkout)
        return run.layout == "sealed" and self.moved(run)

    def moved_on(self, run: Run) -> None:
        """The move is whole: its marker has done its work."""
        if self.marker is not None:
            remove(self.marker)
            self.marker = None


def arm(run: Run) -> Armed:
    """Make the obligations of this run durable, or change nothing.

    Raises:
        UpdateError: one cannot be written; the install is untouched.
    """
    armed = Armed(marker=None)
    candidate = run.candidate
    assert candidate is not None
    try:
        armed.undo.append(tail_of(run).arm())
        armed.undo.append(
            debt_of(run).arm(
                now=run.clock.time(),
                owner=run.run_id,
                expected=candidate.identity,
                inventory=owed_inventory(run),
                profile=profile_name(run.home, run.root_home),
            )
        )
        if run.layout == "sealed":
            armed.marker = _mark(run, armed)
    except StoreError as error:
        armed.hand_back()
        raise UpdateError(
            f"What this update will owe cannot be recorded: {error.message}",
            stop_class="obligation_unwritable",
            advice=error.advice,
        ) from error
    return armed


def _mark(run: Run, armed: Armed) -> Path:
    """The move marker of a sealed install: who moves `current`, from where, to where."""
    paths, me = paths_of(run), myself()
    place = paths.folder / "moving.json"
    was = paths.pointed()
    assert run.candidate is not None
    write_json(
        place,
        {
            "schema": 1,
            "run_id": run.run_id,
            "pid": me.pid,
            "create_time": me.create_time,
            "at": iso(run.clock.time()),
            "from": was.name if was is not None else None,
            "to": run.candidate.folder.name,
        },
    )

    def unmark() -> None:
        remove(place)

    armed.undo.append(unmark)
    return place
