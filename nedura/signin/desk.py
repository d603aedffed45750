"""One sign-in at a time for each place that can start one: a newer start takes over, and a late cancel touches only its own attempt."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Final

import attrs

__all__ = ["Desk", "Ticket"]

_numbers: Final = itertools.count(1)


@attrs.define(eq=False)
class Ticket:
    """One attempt. Pass it as `cancelled` to `run_sign_in`.

    Attributes:
        id: unlike any other ticket of this process.
        key: who started it.
        stopped: it was cancelled.
        replaced: a newer attempt of the same key took its place.
    """

    id: int
    key: Hashable
    stopped: bool = False
    replaced: bool = False

    def __call__(self) -> bool:
        """Whether the attempt must stop."""
        return self.stopped or self.replaced

    def cancel(self) -> None:
        """Stop this attempt and no other."""
        self.stopped = True


@attrs.define
class Desk:
    """Who is signing in at the moment in one process.

    Attributes:
        width: how many different keys may be at it at once.
    """

    width: int = 1
    _live: dict[Hashable, Ticket] = attrs.field(factory=dict)

    def begin(self, key: Hashable) -> Ticket | None:
        """Start an attempt: the same key's older one is replaced; None when the desk is busy with others.

        Args:
            key: who starts it, for example (platform, chat, user).
        """
        older = self._live.get(key)
        if older is None and len(self._live) >= self.width:
            return None
        if older is not None:
            older.replaced = True
        ticket = Ticket(next(_numbers), key)
        self._live[key] = ticket
        return ticket

    def end(self, ticket: Ticket) -> None:
        """The attempt is over. A ticket that was replaced takes nothing away from its successor."""
        if self._live.get(ticket.key) is ticket:
            del self._live[ticket.key]

    def live(self, key: Hashable) -> Ticket | None:
        """The attempt of a key that is under way."""
        return self._live.get(key)
