"""What passes between the two halves of an update: one request, one result, and the rules by which the parent believes a result.

Data only, versioned JSON; the wire events are the third and last thing that passes (architecture.md rule 3, facts/update.md 6.2-6.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import RecordCorrupt
from nedura.installs import CodeIdentity
from nedura.product import NEDURA, Product
from nedura.update.ledger.receipt import is_finished

__all__ = ["SCHEMA", "CompletionRequest", "CompletionResult", "is_believable", "judge"]

SCHEMA: Final = 1


@attrs.frozen(kw_only=True)
class CompletionRequest:
    """What new code needs to finish an older run.

    Attributes:
        update_id, nonce: what a result must repeat; the nonce is known to no earlier run.
        source: the tree that finishes; it refuses when it is not that tree.
        root_home, home, install_id, layout: the install.
        python: the interpreter that runs the new code; empty lets the environment step name it.
        environment: request of the environment step (`nedura.update.generation.environment`); None when it is done already.
        product: the old side's product as data.
        options: options that the completion must obey.
        before, expected: the code that was current, and the one that must run now.
        branch: what was updated against.
        changed: whether the code moved in this run.
        first_member: restart one member first and report its failure instead of going on (sealed only).
        snapshots: profile -> snapshot id of this run.
        plan: the plan in wire form.
        receipt: the whole open receipt, to be resumed.
        receipt_path: its file.
        events_fd: descriptor of the event stream, -1 for none.
        deadline: unix seconds by which it must have ended.
        message: what to say on the path where nothing moved.
        windows_resume: pause token, or None.
        channel_retirement: a channel to adopt, or None.
        owed: follow-ups of earlier runs that this one retries.
        way_back: of a deliberate way back the fields `went_behind` and `restored` of its last event.
        notes: what stages of the old side left for the new one.
    """

    update_id: str
    nonce: str
    source: str
    root_home: str
    home: str
    install_id: str = ""
    layout: str = "sealed"
    python: str = ""
    environment: Mapping[str, Any] | None = None
    product: Mapping[str, Any] = attrs.field(factory=dict)
    options: Mapping[str, Any] = attrs.field(factory=dict)
    before: CodeIdentity = attrs.field(factory=CodeIdentity)
    expected: CodeIdentity = attrs.field(factory=CodeIdentity)
    branch: str = ""
    changed: bool = True
    first_member: bool = True
    snapshots: Mapping[str, str] = attrs.field(factory=dict)
    plan: Mapping[str, Any] | None = None
    receipt: Mapping[str, Any] = attrs.field(factory=dict)
    receipt_path: str = ""
    events_fd: int = -1
    deadline: float = 0.0
    message: str = ""
    windows_resume: Mapping[str, Any] | None = None
    channel_retirement: Mapping[str, Any] | None = None
    owed: tuple[str, ...] = ()
    way_back: Mapping[str, str] = attrs.field(factory=dict)
    notes: Mapping[str, Any] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The request file's content."""
        return {"schema": SCHEMA, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> CompletionRequest:
        """Read a request; keys of later versions are left out.

        Raises:
            RecordCorrupt: another schema, or a needed key is missing.
        """
        if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
            raise RecordCorrupt("The completion request has a schema that this version does not know.")
        names = {field.name for field in attrs.fields(cls)}
        fields = {key: item for key, item in value.items() if key in names}
        try:
            for key in ("before", "expected"):
                fields[key] = read_code(fields.get(key) or {})
            fields["owed"] = tuple(fields.get("owed") or ())
            return cls(**fields)
        except TypeError as error:
            raise RecordCorrupt("The completion request lacks something.") from error

    def product_object(self) -> Product:
        """The product as an object; fields that this version does not know are left out.

        Of our own product the new code knows better than the old side, all but how the host manages packages.
        """
        if self.product.get("name", NEDURA.name) == NEDURA.name:
            given = self.product.get("environment", NEDURA.environment)
            return attrs.evolve(NEDURA, environment="none" if given == "none" else "managed")
        from cattrs import structure

        return structure(dict(self.product), Product)

    @property
    def tree(self) -> Path:
        """The tree as a path."""
        return Path(self.source)


def read_code(value: Mapping[str, Any]) -> CodeIdentity:
    """A code identity from JSON, unknown keys left out."""
    known = {field.name for field in attrs.fields(CodeIdentity)}
    return CodeIdentity(**{key: str(item) for key, item in value.items() if key in known})


@attrs.frozen(kw_only=True)
class CompletionResult:
    """What the completion says at its end.

    Attributes:
        update_id, nonce: repeated from the request.
        exit_code: what it exits with.
        receipt: the closed receipt, or None when the parent must have the last word.
        first_member: the check of the first member that failed, empty when none did.
        member: that member's row, so that the parent can bring it back.
        pm_receipt: what the environment step reported, or None.
        windows_resume: the pause token as it stands now, or None.
    """

    update_id: str
    nonce: str
    exit_code: int
    receipt: Mapping[str, Any] | None = None
    first_member: str = ""
    member: Mapping[str, Any] | None = None
    pm_receipt: Mapping[str, Any] | None = None
    windows_resume: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The result file's content."""
        return {"schema": SCHEMA, **attrs.asdict(self)}


ENDINGS: Final[Mapping[str, int]] = {"success": 0, "partial": 1, "interrupted": 130}
"""How a completion may end: behind the commit point there is no other (facts/update.md 1.5)."""


def is_believable(receipt: Mapping[str, Any]) -> bool:
    """Whether a closed receipt of a completion says an ending that can be, with its own exit code."""
    code = receipt.get("exit_code")
    expected = ENDINGS.get(str(receipt.get("outcome")))
    return is_finished(receipt) and isinstance(code, int) and not isinstance(code, bool) and code == expected


def judge(
    request: CompletionRequest, value: object, status: int
) -> tuple[CompletionResult, str] | tuple[None, str]:
    """Whether a result belongs to this run and agrees with itself and with the process that left it.

    Args:
        request: what was asked.
        value: the decoded result file, None when there is none.
        status: the process's real exit status, `128+N` for a signal.

    Returns:
        The result and an empty reason, or None and why it is not believed. An exit status of 0 alone is never success.
    """
    if value is None:
        return None, f"it ended with status {status} and left no result"
    if not isinstance(value, Mapping) or value.get("schema") != SCHEMA:
        return None, "its result has an unknown form"
    if value.get("update_id") != request.update_id or value.get("nonce") != request.nonce:
        return None, "its result belongs to another run"
    exit_code = value.get("exit_code")
    if not isinstance(exit_code, int) or isinstance(exit_code, bool) or exit_code != status:
        return None, f"its result says exit code {exit_code!r}, the process ended with {status}"
    receipt = value.get("receipt")
    failed = value.get("first_member")
    if receipt is None:
        if exit_code == 0 or not isinstance(failed, str) or not failed:
            return None, "its result has no receipt"
    elif not isinstance(receipt, Mapping) or receipt.get("update_id") != request.update_id:
        return None, "its receipt belongs to another run"
    elif not is_finished(receipt):
        return None, "its receipt is not closed"
    elif not is_believable(receipt) or receipt["exit_code"] != exit_code:
        return None, f"its receipt says {receipt.get('outcome')!r} with exit code {exit_code}"
    names = {field.name for field in attrs.fields(CompletionResult)}
    return CompletionResult(**{key: item for key, item in value.items() if key in names}), ""
