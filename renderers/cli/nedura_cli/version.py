"""`nedura --version -v`: which code this is, and where it runs from (decision 46)."""

from __future__ import annotations

import argparse
from pathlib import Path

import nedura
from nedura.homes import process_home, root_home
from nedura.installs import InstallPaths, release_of, running_code, sealed_install_of
from nedura_cli.output import Output

__all__ = ["show"]


def show(args: argparse.Namespace, output: Output) -> int:
    """Print the version; with `-v` install, generation, launcher and home too."""
    output.line(f"nedura {nedura.__version__}")
    if not args.verbose:
        return 0
    code = running_code()
    home = process_home()
    root = root_home(home)
    launcher = InstallPaths(root, code.install_id).launcher()
    sealed = sealed_install_of_here()
    layout = "sealed" if sealed else "zip" if release_of(Path(nedura.__file__)) else "checkout"
    output.line(f"install     {code.install_id or 'none'} ({layout})")
    output.line(f"generation  {code.generation or 'none'}")
    output.line(f"commit      {code.code_sha or 'unknown'}")
    output.line(f"launcher    {launcher if launcher.exists() else 'none'}")
    output.line(f"home        {home}")
    return 0


def sealed_install_of_here() -> InstallPaths | None:
    """The sealed install that this very process runs from."""
    return sealed_install_of(Path(nedura.__file__))
