"""Services of this install that are installed and do not run: an update starts none of them and forgets none (case C005).

A service manager lists what it has loaded; a unit that was stopped long ago is only a file. So the files are read, and the home in one of
them says whose it is, whatever the unit is called.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.fleet import ServiceInfo
from nedura.product import Product

__all__ = ["Stopped", "definitions_in", "stopped_services"]

MAX_DEFINITION: Final = 64 << 10
MAX_DEFINITIONS: Final = 2000
MAX_DROP_INS: Final = 50
_CONTINUED: Final = re.compile(r"\\\r?\n")
"""A line that goes on in the next one."""
_RUNS: Final = ("active", "activating", "reloading", "deactivating", "running")


@attrs.frozen(kw_only=True)
class Stopped:
    """One service that does not run.

    Attributes:
        name: unit or label.
        profile: profile whose home it names.
        definition: its file, None when only the manager knows it.
    """

    name: str
    profile: str
    definition: Path | None = None


def _text(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_DEFINITION)


def _unit(path: Path, drop_ins: bool) -> bytes:
    """A unit's file and its drop-ins, in the order in which systemd reads them."""
    folder = path.with_name(f"{path.name}.d")
    names = sorted(os.listdir(folder))[:MAX_DROP_INS] if drop_ins else []
    files = [folder / name for name in names if name.endswith(".conf")]
    return b"\n".join(_text(file) for file in (path, *files) if file.is_file())


def _unit_home(data: bytes, variable: str) -> str:
    """Value of the home variable in a unit's last `Environment=` line that sets it; empty without one."""
    found = ""
    for line in _CONTINUED.sub(" ", data.decode("utf-8", "replace")).splitlines():
        key, equals, value = line.strip().partition("=")
        if key.strip() != "Environment" or not equals:
            continue
        try:
            words = shlex.split(value)
        except ValueError:
            continue
        if not words:  # an empty assignment forgets the ones before it
            found = ""
        for word in words:
            name, _, text = word.partition("=")
            found = _expanded(text) if name == variable else found
    return found


def _expanded(text: str) -> str:
    """A value with systemd's `%h` and `%%`; other specifiers stay as they are."""
    return re.sub(r"%[h%]", lambda found: account_home() if found[0] == "%h" else "%", text)


def account_home() -> str:
    """What `%h` means to a service manager: the account's home, whatever HOME says here."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a number without an account
        return os.path.expanduser("~")


def _agent_home(data: bytes, variable: str) -> str:
    import plistlib  # with its XML parser, for launchd's files alone
    from xml.parsers.expat import ExpatError

    try:
        agent = plistlib.loads(data)
    except (ValueError, ExpatError):
        return ""
    variables = agent.get("EnvironmentVariables") if isinstance(agent, dict) else None
    value = variables.get(variable) if isinstance(variables, dict) else None
    return value if isinstance(value, str) else ""


def definitions_in(folders: Iterable[Path], product: Product) -> Iterator[tuple[str, str, Path]]:
    """Name, home and file of every service definition that sets our home variable. Reads only; what cannot be read is left out.

    Args:
        folders: of units and agents.
        product: whose variable it is.
    """
    variable = product.env("HOME")
    for folder in folders:
        try:
            names = dict.fromkeys(sorted(os.listdir(folder))[:MAX_DEFINITIONS])
        except OSError:
            continue
        for name in names:
            path = folder / name
            if not name.endswith((".service", ".plist")) or not path.is_file():
                continue
            unit = name.endswith(".service")
            try:
                data = _unit(path, f"{name}.d" in names) if unit else _text(path)
            except OSError:
                continue
            if variable.encode() not in data:
                continue
            home = _unit_home(data, variable) if unit else _agent_home(data, variable)
            if home:
                yield (name if unit else path.stem), home, path


def stopped_services(
    homes: Mapping[str, Path], known: Iterable[ServiceInfo], folders: Iterable[Path], product: Product
) -> tuple[Stopped, ...]:
    """Services on this install's homes that do not run, by name.

    Args:
        homes: profile -> home.
        known: what the service managers listed.
        folders: where definitions lie.
        product: names.
    """
    mine = {os.path.realpath(home): profile for profile, home in homes.items()}
    found: dict[str, Stopped] = {}
    runs: set[str] = set()
    for service in known:
        if service.main_pid or service.pids or service.state in _RUNS:
            runs.add(service.name)
            continue
        profile = mine.get(os.path.realpath(product.setting(service.environment, "HOME") or os.devnull))
        if profile is not None:
            found[service.name] = Stopped(name=service.name, profile=profile, definition=service.definition)
    for name, home, path in definitions_in(folders, product):
        profile = mine.get(os.path.realpath(home))
        if profile is not None and name not in runs:
            found.setdefault(name, Stopped(name=name, profile=profile, definition=path))
    return tuple(found[name] for name in sorted(found))
