"""Bugs that the self-check plants. A harness that cannot see them proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from nedura.signin.accounts import AccountStore
from nedura.signin.handoff_record import LOCK_TIMEOUT, HandoffStore
from nedura.signin.handoff_rules import Record
from nedura.signin.spent import SpentTokens

BUGS: Final = ("skip_lease", "replay_token", "skip_fsync", "third_account", "not_a_renewal")
"""What `--self-check` plants, one after the other.

`skip_fsync` is planted by the tracer (the call returns 0 and does nothing), `not_a_renewal` by the operation (a refresh is saved as if
a person had signed in).
"""

Decide = Callable[[tuple[Record, ...]], tuple[Record, ...]]


class UnwrittenLease(HandoffStore):
    """Sends without having counted: the write of a lease is left out."""

    def change(self, decide: Decide, *, timeout: float = LOCK_TIMEOUT) -> tuple[Record, ...]:
        before = {record.id: record.attempts for record in self.read()}
        after = decide(self.read())
        if any(record.attempts > before.get(record.id, 0) for record in after):
            return after
        return super().change(decide, timeout=timeout)


class AnyAccount(HandoffStore):
    """Takes every record for one of the account that is signed in now."""

    def read(self) -> tuple[Record, ...]:
        subject = AccountStore(self.home, environ={"HOME": str(self.home)}).read().subject
        return tuple(
            attrs.evolve(record, account_sub=subject or record.account_sub) for record in super().read()
        )


class ForgottenTokens(SpentTokens):
    """Does not note that a token has left, so the next process sends it again."""

    def add(self, token: str, now: float) -> None:
        return None


def records_of(bug: str, home: Path) -> HandoffStore:
    """The hand-off store, with or without the planted bug."""
    kinds = {"skip_lease": UnwrittenLease, "third_account": AnyAccount}
    return kinds.get(bug, HandoffStore)(home)


def spent_of(bug: str, store: AccountStore) -> SpentTokens:
    """The list of sent tokens, with or without the planted bug."""
    kind = ForgottenTokens if bug == "replay_token" else SpentTokens
    return kind(store.shared_folder)
