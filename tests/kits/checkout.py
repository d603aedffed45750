"""A real checkout install of this very code: a clone, a virtual environment of its own, live gateways."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from nedura.installs import InstallPaths, install_id_for
from nedura.testing.installs import Content, Origin, Site, make_origin
from tests.kits.site import World, quick_tree

ROOTS = ("", "renderers/cli", "renderers/gateway")


@attrs.define
class CheckoutWorld(World):
    """A world whose command runs straight from the working tree."""

    @property
    def tree(self) -> Path:
        return self.site.checkout

    @property
    def head(self) -> str:
        return subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=self.tree, capture_output=True, text=True, check=True
        ).stdout.strip()


def launcher(folder: Path, checkout: Path) -> Path:
    """The command: a venv's Python that sees the checkout and the packages of the running one."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next((venv / "lib").glob("python*/site-packages"))
    lines = [*(os.path.normpath(checkout / root) for root in ROOTS), sysconfig.get_path("purelib")]
    (packages / "checkout.pth").write_text("".join(f"{line}\n" for line in lines))
    command = folder / "home/bin/nedura"
    command.parent.mkdir(parents=True, mode=0o700)
    command.write_text(f'#!/bin/sh\nexec "{venv}/bin/python" -B -m nedura_cli.main "$@"\n')
    command.chmod(0o755)
    return command


def build(folder: Path, origin: Origin) -> CheckoutWorld:
    """A checkout install of an origin in a folder of its own."""
    (folder / "tmp").mkdir(mode=0o700)
    checkout = origin.clone(folder / "source")
    home = folder / "home"
    home.mkdir(mode=0o700)
    launcher(folder, checkout)
    from nedura.product import NEDURA

    site = Site(
        origin=origin,
        checkout=checkout,
        home=home,
        paths=InstallPaths(home, install_id_for(checkout)),
        product=attrs.evolve(NEDURA, environment="none"),
    )
    return CheckoutWorld(folder, site)


@contextmanager
def checkout_world(
    tree: Mapping[str, Content] | None = None, parent: Path | None = None
) -> Iterator[CheckoutWorld]:
    """A checkout world that is ended and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nw-", dir=parent))
    made = build(folder, make_origin(folder / "origin", quick_tree() if tree is None else tree))
    try:
        yield made
    finally:
        made.close()
