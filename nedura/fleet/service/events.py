"""What the service verbs report."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, final

import attrs

from nedura.text import clean

__all__ = ["EVENTS", "ServiceChanged", "ServiceEvent", "ServiceNote", "ServiceRow"]


@final
@attrs.frozen(kw_only=True)
class ServiceChanged:
    """A verb changed a service.

    Attributes:
        name: unit or label.
        scope: user, system, or the launchd domain.
        change: what was done; `unchanged` when there was nothing to do; `handed_over` when the manager does it in a moment, since it
            ends the process that asked.
        path: its definition.
        keys: settings that the rewrite changed.
    """

    kind: ClassVar[str] = "service_changed"
    name: str
    scope: str
    change: Literal[
        "installed", "refreshed", "removed", "started", "stopped", "unchanged", "would_remove", "handed_over"
    ]
    path: str = ""
    keys: tuple[str, ...] = ()

    @property
    def copy(self) -> str:
        """Chat form."""
        words = {
            "unchanged": "is as it should be",
            "would_remove": "would be removed",
            "handed_over": "is loaded anew in a moment, which ends this command",
        }.get(self.change)
        return f"The service {clean(self.name)} {words or f'was {self.change}'}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        keys = f" ({', '.join(self.keys)})" if self.keys else ""
        path = f" {clean(self.path, 300)}" if self.path else ""
        if self.change == "handed_over":
            return f"↻ {clean(self.name)} ({self.scope}): loaded anew in a moment, which ends this command{keys}{path}"
        return f"✓ {clean(self.name)} ({self.scope}): {self.change.replace('_', ' ')}{keys}{path}"


@final
@attrs.frozen(kw_only=True)
class ServiceRow:
    """One service as it stands.

    Attributes:
        name: unit or label, empty when none is installed.
        scope: user, system, or the launchd domain.
        state: the manager's word, or `not installed`.
        pid: its main process, 0 without one.
        home: the home it is pinned to.
        ours: whether that is a home of this install.
        enabled: whether it starts by itself.
        outdated: settings that differ from what would be written now.
        reason: why it does not run, in words.
        path: its definition.
    """

    kind: ClassVar[str] = "service_status"
    name: str
    scope: str
    state: str
    pid: int = 0
    home: str = ""
    ours: bool = True
    enabled: bool = False
    outdated: tuple[str, ...] = ()
    reason: str = ""
    path: str = ""

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"The service {clean(self.name) or 'of this home'} is {self.state}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        mark = "✓" if self.pid else "↷" if not self.ours else "✗"
        notes = [f"pid {self.pid}"] if self.pid else []
        notes += [clean(self.reason)] if self.reason else []
        notes += [] if self.enabled or not self.name else ["does not start by itself"]
        notes += (
            [f"outdated: {', '.join(self.outdated)}; run: nedura gateway install"] if self.outdated else []
        )
        notes += [f"home {clean(self.home, 300)}"] if self.home else []
        notes += [] if self.ours else ["of another home, left alone"]
        return f"{mark} {clean(self.name) or 'gateway service'} ({self.scope}) {self.state}" + "".join(
            f", {note}" for note in notes
        )


@final
@attrs.frozen(kw_only=True)
class ServiceNote:
    """Something beside the result that the user should know.

    Attributes:
        text: what.
        advice: what to do about it.
        failed: one of several services could not be changed; the others went on.
    """

    kind: ClassVar[str] = "service_note"
    text: str
    advice: str = ""
    failed: bool = False

    @property
    def copy(self) -> str:
        """Chat form."""
        return clean(self.text, 300)

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"⚠ {clean(self.text, 300)} {clean(self.advice, 300)}".rstrip()


ServiceEvent = ServiceChanged | ServiceRow | ServiceNote

EVENTS: Final[tuple[type[Any], ...]] = (ServiceChanged, ServiceRow, ServiceNote)
