"""The error tree: one root, two families (ours and theirs).

::

    NeduraError
    ├── UsageError              the caller asked for something impossible        exit 2
    │   └── ProfileError        a profile name or operation that cannot be
    ├── RefusedError            admission said no, nothing was changed           exit 2
    │   └── ForeignOwner        a home or checkout of another user
    ├── ConfigError             a config file that cannot be read or written
    ├── StoreError              a durable record or store of ours
    │   ├── RecordMissing       it is not there
    │   ├── RecordUnreadable    the system would not let us read it (never "empty")
    │   ├── RecordCorrupt       its bytes make no sense
    │   ├── UnsafePath          symlink, foreign owner, wrong kind of file
    │   │   └── ForeignFolder   root in another user's folder                   exit 2
    │   └── LockTimeout         another process holds the lock
    ├── FleetError              a runtime or a service manager
    ├── UpdateError             a stage of an update
    └── RemoteError             the other side is wrong
        ├── Unreachable         no answer
        │   └── UntrustedServer its certificate is not believed
        └── PortalError         an answer that refuses, or that makes no sense

Every error composes its own one-line message and carries the advice a user needs; callers never format text.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigError",
    "FleetError",
    "ForeignFolder",
    "ForeignOwner",
    "LockTimeout",
    "NeduraError",
    "PortalError",
    "ProfileError",
    "RecordCorrupt",
    "RecordMissing",
    "RecordUnreadable",
    "RefusedError",
    "RemoteError",
    "StoreError",
    "Unreachable",
    "UnsafePath",
    "UntrustedServer",
    "UpdateError",
    "UsageError",
]


class NeduraError(Exception):
    """Root of everything nedura raises on purpose.

    Attributes:
        message: one line for people; holds no secret.
        advice: what to do about it, one line, may be empty.
        exit_code: what a command exits with when this ends it.
        code: closed token for machines (`--json`).
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def diagnostics(self) -> str:
        """The message and its advice in one line, masked: it may quote a command line, an address or a program's words."""
        from nedura.text import redact  # not at every start

        return redact(f"{self.message} {self.advice}".strip())


class UsageError(NeduraError):
    """Raised when the caller asked for something that cannot be."""

    exit_code = 2
    code = "usage"


class ProfileError(UsageError):
    """Raised when a profile name or operation is impossible."""

    code = "profile"


class RefusedError(NeduraError):
    """Raised when admission says no; nothing was changed."""

    exit_code = 2
    code = "refused"


class ForeignOwner(RefusedError):
    """Raised when a home or a checkout belongs to another user: nothing of ours is left there, not even a receipt."""


class ConfigError(NeduraError):
    """Raised when a config file cannot be read, understood or written."""

    code = "config"


class StoreError(NeduraError):
    """Raised when a durable record or store of ours cannot be used."""

    code = "store"


class RecordMissing(StoreError):
    """Raised when a record is not there."""

    code = "record_missing"


class RecordUnreadable(StoreError):
    """Raised when the system would not let us read a record. It is never taken for an empty one."""

    code = "record_unreadable"


class RecordCorrupt(StoreError):
    """Raised when a record's bytes make no sense."""

    code = "record_corrupt"


class UnsafePath(StoreError):
    """Raised when a path is a link, of another kind, or of another owner than it must be."""

    code = "unsafe_path"


class ForeignFolder(UnsafePath):
    """Raised when root would make something in another user's folder, which its owner could neither read nor replace."""

    exit_code = 2


class LockTimeout(StoreError):
    """Raised when another process kept a lock for longer than we may wait.

    Attributes:
        holder: pid of the holder, or None when it could not be told.
    """

    code = "lock_timeout"

    def __init__(self, what: str, *, holder: int | None, waited: float) -> None:
        who = f"process {holder}" if holder else "another process"
        how_long = f"has held it for more than {waited:.0f} s" if waited >= 1 else "is at work"
        super().__init__(
            f"{what} is locked: {who} {how_long}.",
            advice="Try again when it has finished.",
        )
        self.holder = holder


class FleetError(NeduraError):
    """Raised when a runtime or its service manager cannot do what was asked."""

    code = "fleet"


class UpdateError(NeduraError):
    """Raised when a stage of an update cannot be done.

    Attributes:
        stop_class: closed token for the receipt (facts/update.md 9.2).
    """

    code = "update"

    def __init__(self, message: str, *, stop_class: str, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.stop_class = stop_class


class RemoteError(NeduraError):
    """Raised when the other side is wrong."""

    code = "remote"


class Unreachable(RemoteError):
    """Raised when a request got no answer: DNS, refused, TLS, timeout, dropped.

    Attributes:
        sent: whether it may have reached the server: a credential inside it that works only once is then spent.
    """

    code = "unreachable"
    sent: bool = True


class UntrustedServer(Unreachable):
    """Raised when a server's certificate is not believed: final, a later attempt cannot help."""

    code = "untrusted_server"


class PortalError(RemoteError):
    """Raised when the portal's answer refuses or makes no sense.

    Attributes:
        status: HTTP status of the answer.
        error: the answer's own JSON code, `""` when it has none.
        retry_after: seconds, when the answer names them.
    """

    code = "portal"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        error: str = "",
        retry_after: float | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message, advice=advice)
        self.status = status
        self.error = error
        self.retry_after = retry_after
