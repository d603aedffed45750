"""Model ids for completion: what the account may use, asked for beside the prompt and kept a while."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import NeduraError
from nedura.signin import ModelChoice, list_models

__all__ = ["ModelNames"]

KEPT: Final = 600.0
RETRY: Final = 30.0
"""Seconds that a list counts, and that a failure is left alone."""


@attrs.define
class ModelNames:
    """The lists of this process, one a home.

    Attributes:
        ask: asks for one home's list.
        now: seconds.
    """

    ask: Callable[[Path], Awaitable[ModelChoice]] = list_models
    now: Callable[[], float] = time.monotonic
    _lists: dict[Path, tuple[str, ...]] = attrs.field(factory=dict)
    _again: dict[Path, float] = attrs.field(factory=dict)
    _asking: set[Path] = attrs.field(factory=set)

    def known(self, home: Path) -> tuple[str, ...]:
        """What is known now; never waits."""
        return self._lists.get(home, ())

    def due(self, home: Path) -> bool:
        """Whether it is time to ask."""
        return home not in self._asking and self.now() >= self._again.get(home, 0.0)

    def forget(self) -> None:
        """Another account may see other models."""
        self._lists.clear()
        self._again.clear()

    async def learn(self, home: Path) -> bool:
        """Ask for a home's list; whether it is another one now. A list that cannot be had is no error: ids can be typed."""
        self._asking.add(home)
        try:
            names = (await self.ask(home)).models
        except NeduraError:
            self._again[home] = self.now() + RETRY
            return False
        finally:
            self._asking.discard(home)
        self._again[home] = self.now() + KEPT
        changed = names != self._lists.get(home)
        self._lists[home] = names
        return changed
