"""The lock file of a version, read strictly: pinned packages with hashes and nothing else, whoever wrote it.

An installer takes far more from such a file: other indexes and files, source distributions (`--no-binary`, `name @ url`), whose build
code would run before anything judged the version. So a line of another kind is refused, and the installer gets a file that is written
anew from what was understood: no encoding, comment or continued line can mean something else to it than to us. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from nedura.errors import UpdateError
from nedura.text import clean

__all__ = ["Pin", "plain_lock", "read_lock"]

MAX_LOCK: Final = 8 << 20
_HASHES: Final = r"(?:--hash=[a-z0-9]+:[0-9a-fA-F]+\s*)"
_END: Final = r"(?:\s#.*)?\\?\s*\Z"
_PIN: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[A-Za-z0-9._, -]*\])?\s*==\s*(?P<version>[A-Za-z0-9.!+_-]+)\s*"
    rf"(?:;\s*(?P<marker>(?:(?!\s-)[\w\s.'\"()<>=!~,+-])*?)\s*)?(?P<hashes>(?<=\s){_HASHES}*)?{_END}"
)
_MORE: Final = re.compile(rf"\s*(?P<hashes>{_HASHES}+){_END}")


class Pin(NamedTuple):
    """One pinned package: name with its extras, version, environment marker (empty for none), hashes."""

    name: str
    extras: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read_lock(data: bytes) -> list[Pin]:
    """The packages that a lock file pins.

    Raises:
        UpdateError: it holds anything else; names the line.
    """
    try:
        lines = data[: MAX_LOCK + 1].decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise _refused("bytes that are no ASCII text") from error
    if len(data) > MAX_LOCK:
        raise _refused(f"more than {MAX_LOCK >> 20} MB")
    pins: list[Pin] = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pin, more = _PIN.match(line), _MORE.match(line)
        if pin is not None:
            hashes = tuple((pin["hashes"] or "").split())
            pins.append(
                Pin(pin["name"], pin["extras"] or "", pin["version"], (pin["marker"] or "").strip(), hashes)
            )
        elif more is not None and pins:
            pins[-1] = pins[-1]._replace(hashes=(*pins[-1].hashes, *more["hashes"].split()))
        else:
            raise _refused(repr(clean(line.strip(), 120)))
    return pins


def _refused(what: str) -> UpdateError:
    return UpdateError(
        f"The lock file of packages holds {what}: only pinned packages with hashes are installed.",
        stop_class="dependencies",
        advice="Nothing was changed. Tell whoever publishes it.",
    )


def plain_lock(pins: Sequence[Pin]) -> bytes:
    """A lock file with these packages and nothing else."""
    return "".join(
        f"{pin.name}{pin.extras}=={pin.version}{f' ; {pin.marker}' if pin.marker else ''} {' '.join(pin.hashes)}".rstrip()
        + "\n"
        for pin in pins
    ).encode("ascii")
