"""Looks for what `install_kind` judges. Read-only; what cannot be read is reported as it is."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.installs import checkout_of, generation_of
from nedura.product import Product
from nedura.update.planning.install_kind import Observed, image_reference, judge_kind

__all__ = ["Machine", "declared_owner", "observe"]


@attrs.frozen(kw_only=True)
class Machine:
    """Places of the machine; a test passes its own.

    Attributes:
        root: root of the file system.
        executable: the running interpreter.
    """

    root: Path = Path("/")
    executable: str = attrs.field(factory=lambda: sys.executable)


MARKER: Final = "etc/{name}/image-provenance.json"
LABEL: Final = "etc/{name}/image-label"
_CONTAINER_SIGNS: Final = (".dockerenv", "run/.containerenv")


def _text(path: Path, limit: int) -> str:
    """A small text file, whoever wrote it; empty when it is not there or is no plain file (a pipe must not hold us)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return os.read(handle, limit).decode("utf-8-sig", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(handle)


def _word(path: Path) -> str:
    """One lower-case word of a small file; empty when it is not there."""
    return _text(path, 64).lower()


def _image(path: Path, product: Product) -> str:
    """Image that a label file names, as it stands; the product's own name when it names none that could be pulled."""
    text = _text(path, 2048)
    return image_reference(text) or product.name if text else ""


def _marker(path: Path) -> bytes | None:
    """The image marker; anything that is there and no readable regular file is an invalid one: it fails closed."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return b"" if path.parent.is_symlink() and not path.parent.exists() else None
    except OSError:
        return b""
    if not stat.S_ISREG(info.st_mode) or info.st_size > 65536:
        return b""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _steward(tree: Path) -> Mapping[str, Any] | None:
    """The declaration of a tree's owner, whatever user wrote it: a steward is another one by its nature."""
    place = tree / "install-stamp.json"
    if not os.path.lexists(place):
        return None
    try:
        record = json.loads(_text(place, 65536))
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _package(root: Path, package: Path) -> str:
    """Package that owns a tree below /usr, by dpkg's own lists; only the names that can fit are read."""
    if not str(package).startswith(("/usr/", "/data/data/com.termux/")) and root == Path("/"):
        return ""
    relative = "/" + str(package).removeprefix(str(root)).lstrip("/")
    lists = root / "var/lib/dpkg/info"
    tail = package.name.replace("_", "-")
    try:
        found = sorted(lists.glob(f"*{tail}*.list"))
    except OSError:
        return ""
    for path in found[:50]:
        try:
            with open(path, "rb") as file:
                if relative.encode() in file.read(4 << 20).splitlines():
                    return path.name.removesuffix(".list").partition(":")[0]
        except OSError:
            continue
    return ""


def _top(tree: Path, anchor: Path) -> Path:
    """The top package of a file in a tree."""
    parts = Path(os.path.realpath(anchor)).relative_to(tree).parts
    return tree / parts[0] if parts else tree


def observe(
    home: Path,
    product: Product,
    environ: Mapping[str, str],
    *,
    anchor: Path | None = None,
    machine: Machine | None = None,
) -> Observed:
    """Look around.

    Args:
        home: root home.
        product: names.
        environ: the real environment.
        anchor: a file of the running code; default this one.
        machine: places of the machine.
    """
    machine = Machine() if machine is None else machine
    anchor = Path(__file__).parent if anchor is None else anchor
    generation = generation_of(anchor)
    checkout = checkout_of(anchor) if generation is None else None
    tree = generation / "tree" if generation else checkout or Path(os.path.realpath(anchor)).parents[1]
    name = product.home_folder.lstrip(".")
    return Observed(
        code=str(tree),
        sealed=generation is not None,
        git=checkout is not None,
        marker=_marker(machine.root / MARKER.format(name=name)),
        stamp="" if generation else _word(tree / ".install_method"),
        home_stamp=_word(home / ".install_method"),
        managed=product.setting(environ, "MANAGED") or ("" if generation else _word(tree / ".managed")),
        steward=_steward(tree),
        container=any((machine.root / sign).exists() for sign in _CONTAINER_SIGNS),
        apt_package="" if generation or checkout else _package(machine.root, _top(tree, anchor)),
        executable=machine.executable,
        termux="com.termux" in environ.get("PREFIX", ""),
        image=_image(machine.root / LABEL.format(name=name), product),
    )


def declared_owner(tree: Path, product: Product) -> str:
    """Who a tree says it belongs to, in one sentence; empty when it says nobody else."""
    found = judge_kind(
        Observed(
            code=str(tree),
            git=True,
            stamp=_word(tree / ".install_method"),
            managed=_word(tree / ".managed"),
            steward=_steward(tree),
        ),
        product,
    )
    return found.reason
