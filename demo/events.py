"""What the demo tells about itself; in between come the events of the sign-in and of the update as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, final

import attrs

__all__ = ["DemoFinished", "DemoStep", "Fact"]


@final
@attrs.frozen(kw_only=True)
class DemoStep:
    """One of the demo's steps begins or ends.

    Attributes:
        number: 1 to 7.
        title: what it does.
        state: how far it is.
        detail: why it failed, or what came out.
        seconds: how long it took, once it has ended.
    """

    kind: ClassVar[str] = "demo_step"
    number: int
    title: str
    state: Literal["started", "done", "failed"]
    detail: str = ""
    seconds: float = 0.0

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"{self.title}: {self.state}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        if self.state == "started":
            return f"\n{self.number}. {self.title}"
        mark = "✓" if self.state == "done" else "✗"
        detail = f": {self.detail}" if self.detail else ""
        return f"   {mark} {self.state} in {self.seconds:.1f} s{detail}"


@final
@attrs.frozen(kw_only=True)
class Fact:
    """Something the demo looked at itself and found true.

    Attributes:
        text: what holds.
    """

    kind: ClassVar[str] = "demo_fact"
    text: str

    @property
    def copy(self) -> str:
        """Chat form."""
        return self.text

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"   · {self.text}"


@final
@attrs.frozen(kw_only=True)
class DemoFinished:
    """The last line: whether every step held.

    Attributes:
        ok: every step held.
        reason: the first thing that did not hold.
        folder: where everything was, or still is with `--keep`.
        kept: the folder is still there.
        receipt: path of the update's receipt.
        matrix: rows of the version matrix as the update told them.
        downtimes: profile -> milliseconds without service.
        seconds: the whole demo.
    """

    kind: ClassVar[str] = "demo_finished"
    ok: bool
    reason: str = ""
    folder: str = ""
    kept: bool = False
    receipt: str = ""
    matrix: tuple[Mapping[str, Any], ...] = ()
    downtimes: Mapping[str, int] = attrs.field(factory=dict)
    seconds: float = 0.0

    @property
    def copy(self) -> str:
        """Chat form."""
        return "The demo held." if self.ok else "The demo did not hold."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        if not self.ok:
            line = f"\nThe demo failed after {self.seconds:.0f} s: {self.reason}"
        else:
            down = ", ".join(f"{profile} {ms} ms" for profile, ms in self.downtimes.items())
            line = f"\nEverything held in {self.seconds:.0f} s. Time without service: {down}."
        return line + (f"\nKept: {self.folder}" if self.kept else "")
