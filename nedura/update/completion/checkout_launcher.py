"""The launcher of a checkout: `<root home>/bin/nedura` starts the owner's Python on the code of the checkout (decision 46)."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura import whole
from nedura.homes import HOME_VARIABLE
from nedura.installs import InstallPaths
from nedura.product import NEDURA, Product
from nedura.programs import child_environment
from nedura.records import make_folder, write_bytes
from nedura.update.bounded import run_bounded
from nedura.update.generation.launcher import MARK, TOOLS, launcher_install
from nedura.update.source.move_marker import MARKER as MOVE_MARKER
from nedura.update.source.torn import git_dir_of

__all__ = ["checkout_launcher_text", "publish_checkout_launcher"]

_TEXT: Final = """\
#!/bin/sh
{mark}{install}
# Runs the checkout's code in its owner's environment; what that environment imports was checked when this was written.
{tools}home=${{0%/*}}/..
[ -d "$home/installs/{install}" ] || home=$(dirname -- "$(readlink -f -- "$0")")/..
[ -n "${{{variable}-}}" ] || {variable}=$(cd -P -- "$home" && pwd -P)
export {variable}
code={code}
{mend}# An entry point that was emptied or cut off would end with 0 and without a word; one that an update just moves is its own.
{seems_whole} {entry} || {python} -I -S -B -X utf8 -c "$code" entry {checkout} {inside} {command} || exit 1
exec {python} -P -B -m {module} "$@"
"""
_MEND: Final = """\
# A killed update may have left any file of the checkout half written: code that is no part of it puts it back first.
if [ -e {marker} ]; then
    again=; for word; do [ "$word" = update ] && again=--again; done
    {python} -I -S -B -X utf8 -c "$code" mend {checkout} {command} $again || exit 1
fi
"""
_PROBE: Final = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); print(s.origin if s else '')"
PROBE_SECONDS: Final = 20.0


_CALL: Final = """\
if sys.argv[1] == "entry":
    raise SystemExit(entry_is_whole(*sys.argv[2:]))
raise SystemExit(mend_from_outside(sys.argv[2], sys.argv[3], again="--again" in sys.argv))
"""
_END: Final = "raise SystemExit(program())"
"""The last line of our own entry point; of another product's it is only known that it is not empty."""


def checkout_launcher_text(
    paths: InstallPaths, product: Product, checkout: Path, python: str, entry: Path
) -> str:
    """Text of the launcher; `entry` is the file of the product's main module."""
    return _TEXT.format(
        code=shlex.quote(f"{inspect.getsource(whole)}\n\n{_CALL}"),
        seems_whole=_unless_moving(checkout)
        + (f"grep -qsF {shlex.quote(_END)}" if product.main_modules == NEDURA.main_modules else "test -s"),
        entry=shlex.quote(str(entry)),
        checkout=shlex.quote(str(checkout)),
        inside=shlex.quote(os.path.relpath(os.path.realpath(entry), os.path.realpath(checkout))),
        command=shlex.quote(product.command),
        mark=MARK,
        tools=TOOLS,
        install=paths.install_id,
        variable=product.env("HOME") if product.env_prefix else HOME_VARIABLE,
        mend=_mending(product, checkout, python),
        python=shlex.quote(python),
        module=product.main_modules[0],
    )


def _marker(checkout: Path) -> str:
    git_dir = git_dir_of(str(checkout))
    return shlex.quote(os.path.join(git_dir, MOVE_MARKER)) if git_dir else ""


def _unless_moving(checkout: Path) -> str:
    marker = _marker(checkout)
    return f"[ -e {marker} ] || " if marker else ""


def _mending(product: Product, checkout: Path, python: str) -> str:
    """The look at the move marker; empty for a tree without git, which has none."""
    marker = _marker(checkout)
    if not marker:
        return ""
    return _MEND.format(
        marker=marker,
        python=shlex.quote(python),
        checkout=shlex.quote(str(checkout)),
        command=shlex.quote(product.command),
    )


def publish_checkout_launcher(
    paths: InstallPaths, product: Product, checkout: Path, python: str, environ: Mapping[str, str]
) -> str:
    """Write the launcher where it would start this checkout; says why not, empty when it stands. Blocks.

    Another install's launcher stays: two installs of one root home have one name, and its first owner keeps it.

    Args:
        paths: the install.
        product: names.
        checkout: the working tree.
        python: the owner's interpreter.
        environ: where children's variables come from.

    Raises:
        StoreError, OSError: it cannot be written.
    """
    owner = launcher_install(paths, product.command)
    if owner not in ("", paths.install_id):
        return f"bin/{product.command} is of another install ({owner})"
    # nothing of the update's own path may answer for the owner's environment
    argv = [python, "-P", "-B", "-c", _PROBE, product.main_modules[0]]
    done = run_bounded(argv, env=child_environment(environ), timeout=PROBE_SECONDS)
    found = done.out.decode("utf-8", "replace").strip()
    if (
        done.code != 0
        or not found
        or not os.path.realpath(found).startswith(f"{os.path.realpath(checkout)}{os.sep}")
    ):
        return "its Python does not find this checkout by itself (pip install -e)"
    path = paths.launcher(product.command)
    make_folder(path.parent, 0o755)
    write_bytes(path, checkout_launcher_text(paths, product, checkout, python, Path(found)).encode(), 0o755)
    return ""
