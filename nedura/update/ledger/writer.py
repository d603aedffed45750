"""The hand-over of the pen: one writer of a receipt at a time."""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

__all__ = ["EVENTS", "WriterChanged"]


@final
@attrs.frozen(kw_only=True)
class WriterChanged:
    """Another process writes the receipt from now on.

    Attributes:
        pid, create_time: that process.
    """

    kind: ClassVar[str] = "writer_changed"
    pid: int
    create_time: float = 0.0

    @property
    def copy(self) -> str:
        """Chat form: nothing."""
        return ""

    @property
    def copy_terminal(self) -> str:
        """Terminal form: nothing."""
        return ""


EVENTS: Final[tuple[type[Any], ...]] = (WriterChanged,)
"""Every kind of this module."""
