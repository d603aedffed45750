"""Install kinds: every one first-class, one answer on every path (facts/update.md 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nedura.product import NEDURA
from nedura.update.planning.install_kind import Observed, judge_kind, judge_marker

TREE = "/home/u/src/nedura"
VALID = {
    "schema": 1,
    "deployment_kind": "image",
    "manager": "docker",
    "image": "registry.example/team/nedura",
}


NIX = "nix profile upgrade nedura (or update the flake input and rebuild with nixos-rebuild or home-manager)"
REGISTRY = "docker pull registry.example/team/nedura:latest"
LONG = "registry.example/" + "group/" * 40 + "nedura:V1.2-RC1"
DEB = {"code": "/usr/lib/python3/dist-packages", "apt_package": "python3-nedura"}
TERMUX = {"code": "/data/data/com.termux/x", "apt_package": "nedura", "termux": True}
FLEETCTL = b'{"schema": 1, "deployment_kind": "image", "manager": "fleetctl"}'


def marker(**changes: Any) -> bytes:
    return json.dumps({**VALID, **changes}).encode()


TABLE: dict[str, tuple[dict[str, Any], str, bool, str, str]] = {
    "git checkout": ({"git": True}, "git", True, "", "nedura update"),
    "sealed": ({"sealed": True}, "git", True, "", "nedura update"),
    "nothing known": ({}, "unknown", True, "", "nedura update"),
    "image marker": ({"git": True, "marker": marker()}, "docker", False, "image-marker", REGISTRY),
    "marker of another manager": ({"marker": FLEETCTL}, "fleetctl", False, "image-marker", "update the image with fleetctl"),
    "marker pins a tag": ({"marker": marker(image="r.example/n:1.2")}, "docker", False, "image-marker", "docker pull r.example/n:1.2"),
    "unreadable marker": ({"git": True, "marker": b""}, "image", False, "image-marker-invalid", "docker pull nedura:latest"),
    "stamp of the tree": ({"stamp": "docker"}, "docker", False, "docker", "docker pull nedura:latest"),
    "stamp with label": ({"stamp": "docker", "image": "r.example/n"}, "docker", False, "docker", "docker pull r.example/n:latest"),
    "label alone": ({"image": "r.example/n"}, "docker", False, "docker", "docker pull r.example/n:latest"),
    "managed": ({"git": True, "managed": "NixOS"}, "nixos", False, "nixos", NIX),
    "managed by others": ({"git": True, "managed": "puppet"}, "puppet", False, "managed", "update via puppet"),
    "nix store": ({"code": "/nix/store/abc-nedura/lib"}, "nix", False, "nix", NIX),
    "homebrew": ({"code": "/opt/homebrew/Cellar/nedura/1.0/libexec"}, "homebrew", False, "homebrew", "brew upgrade nedura"),
    "uv tool": ({"code": "/home/u/.local/share/uv/tools/nedura/lib/python3.11/site-packages"}, "uv", False, "uv", "uv tool upgrade nedura"),
    "release, brew's python": ({"code": "/home/u/n", "executable": "/opt/homebrew/bin/python3"}, "unknown", True, "", "nedura update"),
    "release, a uv tool's python": ({"code": "/home/u/n", "executable": "/h/uv/tools/x/bin/python"}, "unknown", True, "", "nedura update"),
    "release of a user called homebrew": ({"code": "/home/homebrew/nedura-1"}, "unknown", True, "", "nedura update"),
    "pip in brew": ({"code": "/opt/homebrew/lib/python3.12/site-packages"}, "pip", False, "pip", "pip install --upgrade nedura"),
    "pip in the cellar's python": (
        {"code": "/opt/homebrew/Cellar/python@3.12/3.12.1/lib/site-packages"}, "pip", False, "pip", "pip install --upgrade nedura"),
    "uv tool by its interpreter": (
        {"code": "/x/lib/site-packages", "executable": "/h/uv/tools/nedura/bin/python"}, "uv", False, "uv", "uv tool upgrade nedura"),
    "managed by nobody": ({"git": True, "managed": "false"}, "git", True, "", "nedura update"),
    "managed by git": ({"git": True, "managed": "git"}, "git", True, "", "nedura update"),
    "managed by somebody": ({"git": True, "managed": "1"}, "managed", False, "managed", "update it with the system that manages it"),
    "pipx": ({"code": "/home/u/.local/pipx/venvs/nedura/lib/python3.11/site-packages"}, "pipx", False, "pipx", "pipx upgrade nedura"),
    "pipx with a suffix": ({"code": "/h/pipx/venvs/nedura@b/lib/site-packages"}, "pipx", False, "pipx", "pipx upgrade nedura@b"),
    "needed by another uv tool": ({"code": "/h/uv/tools/agents/lib/python3.11/site-packages"}, "uv", False, "uv", "uv tool upgrade agents"),
    "versioned formula": ({"code": "/opt/homebrew/Cellar/nedura@1/1.0/libexec"}, "homebrew", False, "homebrew", "brew upgrade nedura@1"),
    "marker that no pull takes": ({"marker": marker(image="x; reboot")}, "docker", False, "image-marker", "docker pull nedura:latest"),
    "marker with a long name": ({"marker": marker(image=LONG)}, "docker", False, "image-marker", f"docker pull {LONG}"),
    "pip": ({"code": "/home/u/v/lib/python3.11/site-packages"}, "pip", False, "pip", "pip install --upgrade nedura"),
    "pip, by its Python": (
        {"code": "/srv/my venv/lib/site-packages", "executable": "/srv/my venv/bin/python"}, "pip", False, "pip",
        "'/srv/my venv/bin/python' -m pip install --upgrade nedura"),
    "debian package": (DEB, "apt", False, "apt", "apt-get install --only-upgrade python3-nedura"),
    "termux package": (TERMUX, "apt", False, "apt", "pkg upgrade nedura"),
    "external checkout": ({"git": True, "steward": {"owner": "external", "name": "ansible"}}, "external", False, "external", ""),
    "commit build": ({"git": True, "steward": {"source": "commit-build"}}, "commit-build", False, "commit-build", ""),
    "desktop app": ({"steward": {"steward": "desktop-app"}}, "desktop-app", False, "steward", "manage updates in the app"),
    "other steward": ({"steward": {"steward": "winget"}}, "winget", False, "steward", "update via winget"),
    "steward stamp in a checkout": ({"git": True, "steward": {"steward": "winget"}}, "git", True, "", "nedura update"),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "kind", "updatable", "code", "mechanism"), TABLE.values(), ids=TABLE)
def test_kinds(seen: dict[str, Any], kind: str, updatable: bool, code: str, mechanism: str) -> None:
    found = judge_kind(Observed(**{"code": TREE, **seen}), NEDURA)
    assert (found.kind, found.updatable, found.code, found.mechanism) == (kind, updatable, code, mechanism)
    assert bool(found.reason) is not updatable
    assert found.exit_code == (0 if code == "external" else 2)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", marker(schema=True), marker(schema=2), marker(schema="1"), marker(manager=""), marker(manager=None),
        marker(deployment_kind="host"), marker(version=3), marker(image=["x"]), b"[" * 100_000, b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_marker_that_is_not_valid_fails_closed(data: bytes) -> None:
    assert judge_marker(data) == ("", "")
    found = judge_kind(Observed(code=TREE, git=True, sealed=True, marker=data), NEDURA)
    assert not found.updatable
    assert found.code == "image-marker-invalid"


def test_optional_keys_may_be_missing() -> None:
    assert judge_marker(b'{"schema": 1, "deployment_kind": "image", "manager": "m"}') == ("m", "")


@pytest.mark.parametrize("container", [True, False])
def test_being_in_a_container_alone_means_nothing(container: bool) -> None:
    assert judge_kind(Observed(code=TREE, git=True, container=container), NEDURA).kind == "git"
    assert judge_kind(Observed(code=TREE, container=container), NEDURA).kind == "unknown"
