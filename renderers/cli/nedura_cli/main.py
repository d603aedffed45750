"""Entry point of the command. The profile is known before anything that reads a home is imported."""

from __future__ import annotations

# the half of `signal` that costs nothing to import: what follows is about the time that imports take
import _signal  # type: ignore[import-not-found]
import os
import sys


def _end_early(number: int, frame: object) -> None:
    """Ctrl-C before the command began: nothing is begun that must be ended, and a traceback tells nobody anything."""
    os._exit(130)


def _hear_ctrl_c(was: object, now: object) -> None:
    """Change what a Ctrl-C does, where it does what is expected: whoever started us may have it ignored."""
    if _signal.getsignal(_signal.SIGINT) is was:
        _signal.signal(_signal.SIGINT, now)


if __name__ == "__main__":
    _hear_ctrl_c(_signal.default_int_handler, _end_early)

import gc  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402


def _not_loaded(error: Exception) -> int:
    """What is told when the code itself is broken, so that nothing of it can tell; a sealed generation's pin says it there."""
    if "_generation" in sys.modules or "--debug" in sys.argv:
        raise error
    sys.stderr.write(f"nedura: {' '.join(_broken(error))}\n")
    return 1


def _says_null_bytes(error: Exception) -> bool:
    """Whether Python met a null byte in some file: a SyntaxError, before 3.11.4 a ValueError, and neither says in which."""
    return isinstance(error, (SyntaxError, ValueError)) and "contain null bytes" in str(error)


def _with_null_bytes(root: str) -> str:
    """The first file of our code that holds a null byte: Python does not say in which one it met it."""
    for top in ("nedura", "renderers"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), "rb") as file:
                        if b"\0" in file.read():
                            return os.path.join(folder, name)
    return ""


def _broken(error: Exception) -> tuple[str, str]:
    """Which file of this code is broken, and how it is put back; a checkout has nobody but its owner's git to ask."""
    import shlex

    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = last.tb_frame.f_code.co_filename if last is not None else ""
    module = getattr(
        getattr(error, "obj", None), "__file__", None
    )  # of an attribute that a cut-off module lacks
    where = getattr(error, "filename", None) or getattr(error, "path", None) or module or where
    reason = " ".join(str(error).split())[:300].rstrip(".")
    root = os.path.normpath(os.path.join(os.path.realpath(__file__), *[os.pardir] * 4))
    if _says_null_bytes(error):
        where = _with_null_bytes(root) or where
    what = f"this code cannot be loaded: {type(error).__name__} in {where}: {reason}."
    if not os.path.exists(os.path.join(root, ".git")):
        return what, "Unpack the release again."
    place = shlex.quote(root)
    inside = f" {shlex.quote(os.path.relpath(where, root))}" if where.startswith(root + os.sep) else ""
    return (
        what,
        f"See what is changed: git -C {place} status. Put it back: git -C {place} checkout --{inside or ' FILE'}",
    )


try:
    from nedura.streams import ReaderGone, mend_streams, outlive_reader
except Exception as error:  # the border of the command: a file was cut off, or an edit broke it
    raise SystemExit(_not_loaded(error)) from error

if TYPE_CHECKING:
    import argparse

    from nedura.errors import NeduraError
    from nedura_cli.output import Output

    Handler = Callable[[argparse.Namespace, Output], int]

__all__ = ["main", "program"]

_VERSION = (["--version"], ["-V"])
FIRST_LINES = {"update": "Checking this install ..."}
"""Said before the command's modules are loaded, which takes half a second: a person sees a line at once."""
COLLECT_EVERY = 20_000
"""New objects between two looks of the garbage collector: at Python's 700 a start's imports are looked through two hundred times."""
EXIT_UNPINNED = 69
"""This process runs from a generation without its lease (generations.md 3)."""


def program() -> int:
    """`main` for a process of its own: the garbage collector has nothing to find in a start, nor in an end."""
    _hear_ctrl_c(_signal.default_int_handler, _end_early)
    gc.set_threshold(COLLECT_EVERY, 10, 10)
    try:
        return main()
    finally:
        _hear_ctrl_c(_signal.default_int_handler, _end_early)
        gc.freeze()  # the process ends: its modules need no last look for cycles


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 refused or wrong usage, 130 interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    streams = mend_streams()
    pin: Any = sys.modules.get("_generation")
    if pin is not None:
        pin.STARTED = True  # from here on we say ourselves what went wrong
    try:
        code = _ended(argv)
        problem = streams.problem()
    except ReaderGone:  # the reader of a pipe went away; nothing is left to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:  # while the last of the answer was written
        return 130
    if problem:
        sys.stderr.write(f"nedura: the output could not be written: {problem}.\n")
        return code or 1
    return code


def _ended(argv: list[str]) -> int:
    """The exit code, also where argparse ends the command itself."""
    try:
        return _main(argv)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _main(argv: list[str]) -> int:
    if argv in _VERSION:
        try:
            from nedura._version import __version__
        except Exception as error:  # that file is the broken one
            return _not_loaded(error)
        sys.stdout.write(f"nedura {__version__}\n")
        return 0
    try:
        _hear_ctrl_c(_end_early, _signal.default_int_handler)
        return _checked(argv)
    except KeyboardInterrupt:
        sys.stderr.write("\nnedura: interrupted.\n")
        return 130


def _checked(argv: list[str]) -> int:
    """The command, once the code that it runs from is known to be whole and pinned."""
    try:
        reason = _torn(argv)
        unpinned = _unpinned() if not reason else ""
    except Exception as error:  # the file that looks is the broken one
        return _not_loaded(error)
    if reason:
        sys.stderr.write(f"nedura: {reason}\n")
        return 1
    if unpinned:
        sys.stderr.write(f"nedura: {unpinned}; start it through its launcher.\n")
        return EXIT_UNPINNED
    try:
        return _run(argv)
    except ReaderGone:
        raise
    except Exception as error:  # what tells of errors is broken itself, or `--debug` asked for it
        return _not_loaded(error)


def _torn(argv: list[str]) -> str:
    """A checkout that a killed update left half moved is mended first; the process then starts again on whole files."""
    from nedura.whole import mend_own_tree

    changed, reason = mend_own_tree(again="update" in argv)
    if changed:
        os.execv(sys.executable, sys.orig_argv)
    return reason


def _unpinned() -> str:
    from nedura.pinned import pinned

    return pinned()


def _subcommand_flags(tokens: Sequence[str]) -> frozenset[str] | None:
    from nedura.commands import own_flags

    return own_flags(tokens)


def _run(argv: list[str]) -> int:
    from nedura.errors import NeduraError

    try:
        argv = _choose_home(argv)
        return _dispatch(argv)
    except ReaderGone:
        raise
    except NeduraError as error:
        if "--debug" in argv:
            raise
        return _report(argv, error)
    except Exception as error:  # the border of the command: no traceback reaches a person
        if "--debug" in argv:
            raise
        return _report(argv, _unexpected(error))


def _choose_home(argv: list[str]) -> list[str]:
    from nedura.profile_flag import select

    selection = select(argv, os.environ, _subcommand_flags)
    os.environ["NEDURA_HOME"] = str(selection.home)
    return selection.argv


def _dispatch(argv: list[str]) -> int:
    from nedura.commands import build_parser

    parser = build_parser(words=argv)
    args = parser.parse_args(argv)
    from nedura_cli.output import Output  # after the parse: `--help` ends there and pays for nothing else

    output = Output(
        as_json=bool(getattr(args, "json", False)),
        plain=args.plain or os.environ.get("ACCESSIBLE") == "1",
        debug=args.debug,
    )
    _set_up_logging(args)
    if args.version:
        return _load("nedura_cli.version:show")(args, output)
    handler = getattr(args, "handler", None)
    if handler is None and args.command is not None:
        _group_help(parser, argv)
        return 2
    if handler is None and args.oneshot is None and not sys.stdin.isatty():
        parser.print_help()
        return 0
    if handler is None:
        _settle("shell", output)
        return _load("nedura_cli.shell.start:shell")(args, output)
    if args.command in FIRST_LINES:
        outlive_reader()
    _settle(args.command, output)
    if args.command in FIRST_LINES and output.interactive:
        output.remark(FIRST_LINES[args.command])
    code = _load(handler)(args, output)
    _tell_newer(args.command, output)
    return code


def _set_up_logging(args: argparse.Namespace) -> None:
    """What the logic layer logs is told by its events too; on stderr it would only break what is drawn. `--debug` shows it."""
    import logging

    handler = logging.StreamHandler() if args.debug else logging.NullHandler()
    logging.getLogger("nedura").addHandler(handler)
    logging.getLogger("asyncio").addHandler(handler)
    if not args.debug:
        logging.lastResort = None


def _settle(command: str | None, output: Output) -> None:
    """Finish what an earlier update left, or say that it is owed; never under a supervisor or for a machine (decision 49)."""
    from nedura.update import is_exempt

    if is_exempt(command, as_json=output.as_json) or os.environ.get("NEDURA_SUPERVISED_CHILD"):
        return
    from nedura.update import Launch

    launch = Launch.here(output.remark)
    if launch is not None:
        launch.settle()


def _tell_newer(command: str, output: Output) -> None:
    """A person at a terminal hears once a day, after the answer, that there is a newer version; the look-up itself goes on aside."""
    from nedura.update import is_exempt

    if is_exempt(command, as_json=output.as_json) or not (output.stderr.isatty() and output.stdout.isatty()):
        return
    from nedura.homes import process_home, root_home
    from nedura_cli.newer import newer_version

    if text := newer_version(root_home(process_home()), sparing=True):
        output.remark(text)


def _load(name: str) -> Handler:
    import importlib

    module, _, function = name.partition(":")
    handler: Handler = getattr(importlib.import_module(module), function)
    return handler


def _group_help(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """A group without its verb: the group's own help, on stderr."""
    from nedura.commands import subparser

    inner: argparse.ArgumentParser | None = parser
    for word in (token for token in argv if not token.startswith("-")):
        found = subparser(inner, word) if inner is not None else None
        inner = found if found is not None else inner
    (inner or parser).print_help(sys.stderr)


def _unexpected(error: Exception) -> NeduraError:
    from nedura.errors import NeduraError
    from nedura.text import clean, redact

    pin: Any = sys.modules.get("_generation")
    damaged = pin.damage(pin.GENERATION) if hasattr(pin, "damage") else []
    if damaged:
        return NeduraError(
            f"this install is damaged: {clean(damaged[0], 200)} is not as it was installed.",
            advice="Repair it: nedura pm sync. Or go back: nedura update --rollback",
        )
    if "_generation" not in sys.modules and _of_code(error):
        what, advice = _broken(error)
        return NeduraError(what, advice=advice)
    reason = redact(clean(error, 200))
    return NeduraError(
        f"unexpected {type(error).__name__}{': ' if reason else ''}{reason}.",
        advice="Run it again with --debug to see where.",
    )


def _of_code(error: Exception) -> bool:
    """Whether it says that a file of ours is cut off or garbled: a module that does not compile, or lacks what others take from it."""
    if isinstance(error, ImportError):
        return (error.name or "").split(".", 1)[0] in ("nedura", "nedura_cli", "nedura_gateway")
    return (
        isinstance(error, SyntaxError)
        or _says_null_bytes(error)
        or (
            isinstance(error, AttributeError)
            and isinstance(error.obj, type(sys))
            and error.obj.__name__.startswith("nedura")
        )
    )


def _report(argv: list[str], error: NeduraError) -> int:
    from nedura.text import redact
    from nedura_cli.output import Output

    output = Output(as_json="--json" in argv)
    told = redact(error.diagnostics())  # it may quote a command line, an address or a program's words
    output.record({"kind": "error", "code": error.code, "copy": redact(error.message), "copy_terminal": told})
    output.remark(f"nedura: {told}")
    return error.exit_code


if __name__ == "__main__":
    raise SystemExit(program())
