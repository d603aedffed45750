"""The launcher: the only name that units, wrappers and people use (decision 46). POSIX sh; needs no Python to fail well."""

from __future__ import annotations

import shlex
from typing import Final

from nedura.homes import HOME_VARIABLE
from nedura.installs import InstallPaths, find_installs
from nedura.product import Product
from nedura.records import make_folder, read_bytes, write_bytes
from nedura.update.generation.damage import launcher_code
from nedura.update.generation.repair import LOST

__all__ = ["TOOLS", "launcher_install", "launcher_text", "write_launcher"]

MARK: Final = "# nedura launcher of install "

TOOLS: Final = """\
[ -n "${PATH-}" ] && command -v readlink >/dev/null && command -v dirname >/dev/null || PATH=${PATH:+$PATH:}/usr/bin:/bin
"""
"""First line of a launcher: with an empty path a shell looks into the current folder, and without these tools no install is found."""

_TEXT: Final = """\
#!/bin/sh
{mark}{install}
# Reads `current` once, so that this process belongs to one generation for its whole life.
{tools}home=${{0%/*}}/..
[ -d "$home/installs/{install}" ] || home=$(dirname -- "$(readlink -f -- "$0")")/..
gen=$(cd -P -- "$home/installs/{install}" 2>/dev/null && printf '%s/%s' "$(pwd -P)" "$(readlink current)")
damaged() {{
    echo {command}": this install is damaged: $1. $2" >&2
    exit "$3"
}}
again() {{
    damaged "$1" "Install it again: ./run install, in $(readlink "$home/installs/{install}/source")" 127
}}
case ${{gen##*/installs/{install}/generations/}} in
    '' | *[!0-9]*) again "its pointer names no generation" ;;
esac
[ -d "$gen/tree" ] || [ -f "$gen/manifest.json" ] || again "generation ${{gen##*/}} is gone"
starts() {{  # an emptied file would be run as an empty script, and end with 0
    [ -L "$1" ] && [ -f "$1" ] && [ -s "$1" ] && [ -x "$1" ]
}}
if ! starts "$gen/venv/bin/python"; then
    why=
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        python=$(command -v "$python" 2>/dev/null) || continue
        case $python in /*) ;; *) continue ;; esac
        if said=$("$python" -I -S -B "$gen/tree/{repair}" "$gen" {roots} 2>&1); then
            printf '%s\n' "$said" >&2
            gen=$("$python" -I -S -c \
'import os, sys; print(os.path.realpath(sys.argv[1]))' "${{gen%/generations/*}}/current")
            break
        fi
        case $said in "{lost}"*) why=${{why:-$said}} ;; esac
    done
    starts "$gen/venv/bin/python" || {{
        lost="its Python is gone: $(readlink "$gen/venv/bin/python"). Install Python 3.11 or newer and start it again."
        echo {command}": ${{why:-$lost}}" >&2
        exit 127
    }}
fi
# The ways out of a damaged generation look at it first, with code that is no part of it.
case " $* " in *" pm sync "* | *" --rollback"*)
    "$gen/venv/bin/python" -I -S -B -c {rescue} "$gen" {command}
    case $? in
        0) pointer=current ;;
        3) pointer=previous ;;
        *) exit 1 ;;
    esac
    gen=${{gen%/generations/*}}/$(readlink "${{gen%/generations/*}}/$pointer")
esac
# Python reads these before any code of ours: what is wrong with them is told in its own words, or not at all.
part=venv/pyvenv.cfg line= site=
[ -f "$gen/$part" ] && {{ read -r line; read -r site; }} <"$gen/$part"
case $line:$site in
    "home = /"*":include-system-site-packages = false")
        for pth in "$gen"/venv/lib/python*/site-packages/_generation.pth; do part=${{pth#"$gen/"}} line=; done
        [ -f "$pth" ] && read -r line <"$pth" || line=
esac
case $line in
    *"import _generation"*) ;;
    *) damaged "$part is not as it was installed" "Repair it: "{command}" pm sync. Or go back: "{command}" update --rollback" 1 ;;
esac
[ -n "${{{variable}-}}" ] || {variable}=$(cd -P -- "$home" && pwd -P)
export {variable}
exec "$gen/venv/bin/python" -I -B -m {module} "$@"
"""

REPAIR: Final = "nedura/update/generation/repair.py"


def launcher_text(paths: InstallPaths, product: Product) -> str:
    """Text of an install's launcher; it finds its install beside itself, so a moved home keeps working."""
    return _TEXT.format(
        mark=MARK,
        tools=TOOLS,
        install=paths.install_id,
        command=shlex.quote(product.command),
        module=product.main_modules[0],
        variable=product.env("HOME") if product.env_prefix else HOME_VARIABLE,
        repair=REPAIR,
        lost=LOST,
        roots=" ".join(shlex.quote(root or ".") for root in product.roots),
        rescue=shlex.quote(launcher_code(product.roots)),
    )


def write_launcher(paths: InstallPaths, product: Product) -> None:
    """Write the launcher, whole or not at all; a running one is replaced beside its old file.

    Raises:
        StoreError: it cannot be written.
    """
    path = paths.launcher(product.command)
    make_folder(path.parent, 0o755)
    write_bytes(path, launcher_text(paths, product).encode(), 0o755)


def launcher_install(paths: InstallPaths, command: str) -> str:
    """Id of the install that a launcher on disk belongs to; empty when there is none of ours.

    A damaged one names nobody: it is of the only install that its home has a record of.

    Raises:
        StoreError: something else is in its place.
    """
    path = paths.launcher(command)
    if not path.exists():
        return ""
    for line in read_bytes(path).decode("utf-8", "replace").splitlines()[:3]:
        if line.startswith(MARK):
            return line.removeprefix(MARK).strip()
    return paths.install_id if find_installs(paths.root_home) == [paths] else "unknown"
