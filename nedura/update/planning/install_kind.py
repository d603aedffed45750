"""How the running code got here, and who updates it (facts/update.md 2). Judged purely from what was observed.

The judgement is about the code tree, never about the shared data folder: a stamp there may come from a container (C001).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import attrs

from nedura.product import Product
from nedura.text import clean

__all__ = ["InstallKind", "Observed", "image_reference", "judge_kind", "judge_marker"]

STAMPS: Final = ("apt", "docker", "nix", "nixos", "home-manager", "git", "unknown")
MAX_REFERENCE: Final = 1024
_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]*")
_PACKAGE: Final = r"([A-Za-z0-9][A-Za-z0-9._@+-]*)"
_NIX: Final = ("nix", "nixos", "home-manager")
_NOBODY: Final = ("0", "false", "no", "off", "git", "unknown")
_SOMEBODY: Final = ("1", "true", "yes", "on")
"""Words for a managing system that name none."""


@attrs.frozen(kw_only=True)
class Observed:
    """What is on disk and around.

    Attributes:
        code: real path of the code tree.
        sealed: it is a generation of an install of ours.
        git: it is a git checkout.
        marker: bytes of the image marker, None when there is none, empty when it is no regular file of root's.
        stamp: `.install_method` of the tree; a generation of ours has none, its tree is the publisher's.
        home_stamp: `.install_method` of the home.
        managed: name of a managing system from the real environment or a managed file.
        steward: the tree's `install-stamp.json`, None without one, empty when it cannot be read.
        container: this process runs in a container.
        apt_package: package that owns the tree, by the package manager's own list.
        executable: `sys.executable`.
        termux: the Termux environment.
        image: image name for `docker pull`, when a label file says so.
    """

    code: str
    sealed: bool = False
    git: bool = False
    marker: bytes | None = None
    stamp: str = ""
    home_stamp: str = ""
    managed: str = ""
    steward: Mapping[str, Any] | None = None
    container: bool = False
    apt_package: str = ""
    executable: str = ""
    termux: bool = False
    image: str = ""


@attrs.frozen(kw_only=True)
class InstallKind:
    """The judgement.

    Attributes:
        kind: install kind.
        updatable: this program updates it in place.
        mechanism: the command or guidance to update it.
        code: closed token of the refusal, empty when updatable.
        reason: why it is not ours to update.
        exit_code: of a refused update.
        conflicts: what says otherwise, and why it does not count.
    """

    kind: str
    updatable: bool
    mechanism: str
    code: str = ""
    reason: str = ""
    exit_code: int = 2
    conflicts: tuple[str, ...] = ()


def judge_marker(data: bytes) -> tuple[str, str]:
    """(manager, image) of a valid image marker; an empty manager when it is not valid.

    Valid is a JSON object with integer `schema` 1, `deployment_kind` `image` and a non-empty `manager`.
    """
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(record, dict) or type(record.get("schema")) is not int or record["schema"] != 1:
        return "", ""
    manager = record.get("manager")
    optional = [record.get(name) for name in ("image", "version", "revision")]
    if record.get("deployment_kind") != "image" or not isinstance(manager, str) or not manager.strip():
        return "", ""
    if any(value is not None and not isinstance(value, str) for value in optional):
        return "", ""
    return clean(manager, 60), image_reference(record.get("image") or "")


def image_reference(text: str) -> str:
    """Name, tag and digest of a container image as it stands; empty for anything that could not be pulled.

    A part of a name is another image, and its letters count: it is never cut or changed.
    """
    return text if len(text) <= MAX_REFERENCE and _REFERENCE.fullmatch(text) else ""


def _refused(kind: str, mechanism: str, code: str, reason: str, exit_code: int = 2) -> InstallKind:
    return InstallKind(
        kind=kind, updatable=False, mechanism=mechanism, code=code, reason=reason, exit_code=exit_code
    )


def _docker(image: str, product: Product) -> str:
    name = image or product.name
    tagged = name if re.search(r"[:@][^/]*\Z", name) else f"{name}:latest"
    return f"docker pull {tagged}"


_CONTAINER_TEXT: Final = (
    "Code in a container image is replaced with the image; state stays in the mounted home."
)
_NIX_TEXT: Final = (
    "nix profile upgrade {name} (or update the flake input and rebuild with nixos-rebuild or home-manager)"
)


def _marker_kind(observed: Observed, product: Product) -> InstallKind | None:
    """The baked marker wins over everything; anything but a valid one fails closed."""
    if observed.marker is None:
        return None
    manager, image = judge_marker(observed.marker)
    if not manager:
        return _refused(
            "image", _docker(observed.image, product), "image-marker-invalid",
            "This is a container image whose marker cannot be read.",
        )  # fmt: skip
    mechanism = (
        _docker(image, product) if manager == "docker" or image else f"update the image with {manager}"
    )
    return _refused(manager, mechanism, "image-marker", f"This install is an image managed by {manager}.")


def _steward_kind(observed: Observed, product: Product) -> InstallKind | None:
    """A tree that declares another owner."""
    steward = observed.steward
    if steward is None:
        return None
    if steward.get("source") == "commit-build":
        return _refused("commit-build", "", "commit-build", "This is a build of one commit for a test.")
    owner, command = clean(steward.get("owner"), 60), clean(steward.get("command"), 200)
    if owner == "external":
        name = clean(steward.get("name"), 60) or "its owner"
        return _refused("external", command, "external", f"This checkout is updated by {name}.", exit_code=0)
    name = clean(steward.get("steward"), 60)
    if observed.git or observed.sealed or not name:
        return None
    known = {
        "desktop-app": "manage updates in the app",
        "docker": _docker(observed.image, product),
        "nix": _NIX_TEXT.format(name=product.name),
    }
    mechanism = command or known.get(name, f"update via {name}")
    return _refused(name, mechanism, "steward", f"This install is managed by {name}.")


def _path_kind(observed: Observed, product: Product) -> InstallKind | None:
    """What the place of the code says; the interpreter's place only for a package that was installed into one."""
    code, name = observed.code, product.name
    if code.startswith("/nix/store/"):
        return _refused("nix", _NIX_TEXT.format(name=name), "nix", "This install lies in the Nix store.")
    if observed.sealed or observed.git:
        return None
    package = re.search(r"/(site|dist)-packages(/|\Z)", code) is not None
    places = (
        ("homebrew", rf"/Cellar/(?!python(?:@|/)){_PACKAGE}", "brew upgrade"),
        ("uv", rf"/uv/tools/{_PACKAGE}", "uv tool upgrade"),
        ("pipx", rf"/pipx/venvs/{_PACKAGE}", "pipx upgrade"),
    )
    for kind, sign, command in places:
        found = re.search(sign, code) or (re.search(sign, observed.executable) if package else None)
        if (
            found
        ):  # its folder is named as the tool knows it: with a suffix, or after the package that needs ours
            return _refused(kind, f"{command} {found[1]}", kind, f"This install belongs to {kind}.")
    if observed.apt_package:
        owner = clean(observed.apt_package, 80)
        command = f"pkg upgrade {owner}" if observed.termux else f"apt-get install --only-upgrade {owner}"
        return _refused("apt", command, "apt", f"This install belongs to the package {owner}.")
    if package:
        python = f"{shlex.quote(observed.executable)} -m " if observed.executable else ""
        # the pip that is found first on the path may be another Python's
        command = f"{python}pip install --upgrade {name}"
        return _refused("pip", command, "pip", "This install belongs to pip.")
    return None


def _stamp_kind(observed: Observed, product: Product) -> InstallKind | None:
    """What the tree's own stamp says, then a managing system."""
    kind = observed.stamp if observed.stamp in STAMPS else ""
    if kind in ("", "git", "unknown"):
        kind = observed.managed.lower()
    if not kind or kind in _NOBODY:
        return None
    if kind in _SOMEBODY:
        return _refused(
            "managed",
            "update it with the system that manages it",
            "managed",
            "This install is managed by another system.",
        )
    known = {
        "docker": _docker(observed.image, product),
        "apt": f"pkg upgrade {product.name}",
        **dict.fromkeys(_NIX, _NIX_TEXT.format(name=product.name)),
    }
    return _refused(
        clean(kind, 40), known.get(kind, f"update via {clean(kind, 40)}"), kind if kind in known else "managed",
        _CONTAINER_TEXT if kind == "docker" else f"This install is managed by {clean(kind, 40)}.",
    )  # fmt: skip


def _conflicts(observed: Observed, kind: str) -> tuple[str, ...]:
    """The home's stamp when it says something else, and a stamp that says nothing; shown, because people look for them."""
    found = []
    if observed.steward is not None and not observed.steward:
        found.append("install-stamp.json of the code tree names nobody, so it does not count.")
    stamp = observed.home_stamp
    if stamp in STAMPS and stamp not in (kind, "unknown"):
        found.append(
            f"{clean(stamp)} stands in .install_method of the home; the home is shared data, the code tree decides."
        )
    return tuple(found)


def judge_kind(observed: Observed, product: Product) -> InstallKind:
    """The install kind; the first rule that fits wins.

    Args:
        observed: what is there.
        product: names.
    """
    for rule in (_marker_kind, _steward_kind, _stamp_kind, _path_kind):
        found = rule(observed, product)
        if found is not None:
            return attrs.evolve(found, conflicts=_conflicts(observed, found.kind))
    if observed.git or observed.sealed:
        kind = InstallKind(kind="git", updatable=True, mechanism=f"{product.command} update")
        return attrs.evolve(kind, conflicts=_conflicts(observed, "git"))
    if (observed.home_stamp == "docker" and observed.container) or observed.image:
        return _refused("docker", _docker(observed.image, product), "docker", _CONTAINER_TEXT)
    kind = InstallKind(kind="unknown", updatable=True, mechanism=f"{product.command} update")
    return attrs.evolve(kind, conflicts=_conflicts(observed, "unknown"))
