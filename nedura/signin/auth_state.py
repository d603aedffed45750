"""One look at the account stores, and what a write to them did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from nedura.signin.authfile import empty_document
from nedura.signin.identity import Entry, Kind, identity_key, is_guest, kind_of
from nedura.signin.shared import held_of, newest_for
from nedura.signin.tokens import email_of, subject_of

__all__ = ["AuthState", "Saved"]


@attrs.frozen(kw_only=True)
class AuthState:
    """One look at the stores.

    Attributes:
        home: the profile's home.
        document: its auth.json.
        entry: the Nous entry in force: its own, else the root profile's.
        source: the auth.json that the entry was read from.
        shared: the shared store's document, None when there is none or it makes no sense.
        damaged: the auth.json is there but makes no sense; a writer puts it aside first.
        shared_damaged: the shared store is there but makes no sense; a sign-in puts it aside first.
        shared_problem: why the shared store could not be used; empty when it could.
    """

    home: Path
    document: Mapping[str, Any] = attrs.field(factory=empty_document, repr=False)
    entry: Entry | None = attrs.field(default=None, repr=False)
    source: Path
    shared: Entry | None = attrs.field(default=None, repr=False)
    damaged: bool = False
    shared_damaged: bool = False
    shared_problem: str = ""

    @property
    def inherited(self) -> bool:
        """Whether the entry is the root profile's."""
        return self.entry is not None and self.source.parent != self.home

    @property
    def subject(self) -> str:
        """The account's `sub`; empty for anything but an account."""
        return "" if is_guest(self.entry) else subject_of((self.entry or {}).get("access_token"))

    @property
    def email(self) -> str:
        """The account's address as its token says; may be empty."""
        return "" if is_guest(self.entry) else email_of((self.entry or {}).get("access_token"))

    @property
    def held(self) -> Entry | None:
        """The identity that the root holds."""
        return held_of(self.shared)

    @property
    def newest(self) -> Entry | None:
        """The newest token set of this account in the shared store; None when it holds none."""
        key = identity_key(self.entry)
        return newest_for(self.shared, key[1]) if key is not None and key[0] == "account" else None

    def kind(self, now: float) -> Kind:
        """What the entry in force is."""
        return kind_of(self.entry, now)


@attrs.frozen(kw_only=True)
class Saved:
    """What a write did.

    Attributes:
        changed: whether the profile's store was written.
        set_aside: where a damaged store was put; None when it was sound.
        shared_problem: why the shared store was not written; empty when nothing failed.
    """

    changed: bool = True
    set_aside: Path | None = None
    shared_problem: str = ""
