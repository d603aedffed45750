"""Entry point of the command. Nothing of nedura is imported before the profile is known."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nedura_cli.output import Output

Handler = Callable[["argparse.Namespace", "Output"], int]  # type: ignore[name-defined]  # noqa: F821


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv in (["--version"], ["-V"]):
        from nedura._version import __version__

        sys.stdout.write(f"nedura {__version__}\n")
        return 0
    return _run(argv)


def _run(argv: list[str]) -> int:
    from nedura.commands import build_parser
    from nedura.errors import NeduraError
    from nedura_cli.output import Output

    args = build_parser().parse_args(argv)
    output = Output(
        as_json=bool(getattr(args, "json", False)),
        plain=args.plain or os.environ.get("ACCESSIBLE") == "1",
        debug=args.debug,
    )
    handler_name = getattr(args, "handler", None)
    if handler_name is None:
        build_parser().print_help()
        return 0
    module, _, function = handler_name.partition(":")
    try:
        handler: Handler = getattr(importlib.import_module(module), function)
        return handler(args, output)
    except NeduraError as error:
        if output.debug:
            raise
        output.record(
            {"kind": "error", "code": error.code, "copy": error.message, "copy_terminal": error.diagnostics()}
        )
        output.remark(f"nedura: {error.diagnostics()}")
        return error.exit_code
    except KeyboardInterrupt:
        output.remark("nedura: interrupted.")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
