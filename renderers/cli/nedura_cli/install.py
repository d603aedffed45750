"""The `install` command."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nedura_cli.output import Output


def install(args: argparse.Namespace, output: Output) -> int:
    """Install a checkout and say how to start it."""
    from nedura.homes import current_home, root_home
    from nedura.update import install_checkout

    home = args.home or root_home(current_home())
    done = install_checkout(
        args.source,
        home.absolute(),
        python=args.python,
        wheels=args.wheels,
        environment=args.environment,
        remote=args.remote,
        branch=args.branch,
        report=output.event,
    )
    output.event(done)
    return 0
