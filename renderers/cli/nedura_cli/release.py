"""`./run release`: pack this checkout as a release of an unpacked install (docs/zip-releases.md)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nedura.commands.folders import existing_folder, named_path
from nedura.errors import NeduraError
from nedura.product import NEDURA
from nedura.text import clean, counted
from nedura.update.source.release_pack import pack_checkout

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run release", description=__doc__, allow_abbrev=False)
    parser.add_argument("--source", type=existing_folder, default=Path.cwd(), help=argparse.SUPPRESS)
    parser.add_argument(
        "--out",
        type=named_path,
        metavar="DIR",
        default=Path("dist").absolute(),
        help="folder to write into (default: dist)",
    )
    parser.add_argument(
        "--address",
        metavar="URL",
        default="",
        help="where latest.json will be served: installs of this release update from there",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Pack, and say what to serve; 1 when it cannot be packed, 2 when it is refused."""
    args = _parser().parse_args(argv)
    try:
        made = pack_checkout(args.source, args.out, args.address, NEDURA.command, dict(os.environ))
    except NeduraError as error:
        sys.stderr.write(f"run: {error.diagnostics()}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"run: the release cannot be written: {error.strerror}.\n")
        return 1
    size = f"{counted(made.files, 'file')}, {made.size / 1e6:.1f} MB"
    sys.stdout.write(f"{clean(str(made.archive), 400)}  {made.version} ({made.commit[:8]}), {size}\n")
    sys.stdout.write(f"{clean(str(made.index), 400)}  names it; serve both from one folder\n")
    if not args.address:
        sys.stderr.write(
            "run: without --address URL an install of this release does not know where its updates come from.\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
