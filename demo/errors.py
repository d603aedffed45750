"""The one way the demo says that something did not hold."""

from __future__ import annotations

from nedura.errors import NeduraError

__all__ = ["DemoError", "hold"]


class DemoError(NeduraError):
    """Raised when a step did not hold; its message is the reason."""

    code = "demo"


def hold(condition: object, what: str) -> None:
    """Go on only if something is true.

    Raises:
        DemoError: it is not.
    """
    if not condition:
        raise DemoError(f"This did not hold: {what}.")
