"""Services of this install that are installed and do not run: an update starts none of them and forgets none (case C005).

A service manager lists what it has loaded; a unit that was stopped long ago is only a file. So the files are read, and the home in one of
them says whose it is, whatever the unit is called.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_SHELLS: Final = ("sh", "bash", "dash")
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
    """Start of a regular file; empty for anything else (a pipe must not hold us)."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, MAX_DEFINITION) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)


def _unit(path: Path, drop_ins: bool) -> bytes:
    """A unit's file and its drop-ins, in the order in which systemd reads them; of these what cannot be read says nothing."""
    folder, names = path.with_name(f"{path.name}.d"), list[str]()
    if drop_ins:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(folder))[:MAX_DROP_INS]
    more = (_text_or_nothing(folder / name) for name in names if name.endswith(".conf"))
    return b"\n".join((_text(path), *more))


def _text_or_nothing(path: Path) -> bytes:
    try:
        return _text(path)
    except OSError:
        return b""


def _settings(data: bytes) -> Iterator[tuple[str, str]]:
    """Keys and values of a unit's lines, in order."""
    for line in _CONTINUED.sub(" ", data.replace(b"\0", b"").decode("utf-8", "replace")).splitlines():
        key, equals, value = line.strip().partition("=")
        if equals:
            yield key.strip(), value.strip()


def _words(text: str) -> list[str] | None:
    """Words of a line by the rules of a shell; None when it has none of these (a quote that does not end)."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def _unit_home(data: bytes, variable: str) -> str:
    """Value that a service manager gives the home variable; empty without one. A later line wins; `EnvironmentFile=` beats `Environment=`,
    and what `ExecStart=` itself sets beats both. An empty value forgets the ones before it.
    """
    told, files, started = "", list[str](), ""
    for key, value in _settings(data):
        if key == "Environment" and (words := _words(value)) is not None:
            told = _expanded(_assigned(words, variable, told)) if words else ""
        elif key == "EnvironmentFile":
            files = [*files, _expanded(value.removeprefix("-"))] if value else []
        elif key == "ExecStart":
            started = _expanded(_started_with(_words(value.lstrip("-@:+!|")) or [], variable))
    for pattern in () if started else files:
        told = _in_files(pattern, variable, told)
    return started or told


def _assigned(words: Iterable[str], variable: str, before: str = "") -> str:
    """Value of the last word that sets a variable."""
    values = [
        value
        for name, equals, value in (word.partition("=") for word in words)
        if equals and name == variable
    ]
    return values[-1] if values else before


def _started_with(words: Sequence[str], variable: str) -> str:
    """Value that a command line sets before the program: `env NAME=value program`, or the same in a shell's `-c`."""
    if not words:
        return ""
    program = os.path.basename(words[0])
    if program in _SHELLS and "-c" in words[:-1]:
        script = _words(words[words.index("-c") + 1]) or []
        return _assigned((word.rstrip(";") for word in script), variable)
    if program != "env":
        return ""
    rest = iter(words[1:])
    values = []
    for word in rest:
        if word in ("-u", "--unset", "-C", "--chdir"):
            next(rest, "")
        elif "=" in word and not word.startswith("-"):
            values.append(word)
        elif not word.startswith("-"):
            break
    return _assigned(values, variable)


def _in_files(pattern: str, variable: str, before: str) -> str:
    """Value that environment files set; what cannot be read sets nothing, as for a file that may be missing."""
    found = before
    for name in sorted(glob.glob(pattern))[:MAX_DROP_INS] if pattern.startswith("/") else ():
        for key, value in _settings(_text_or_nothing(Path(name))):
            if key == variable:
                found = " ".join(_words(value) or [])
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
    if not isinstance(agent, dict):
        return ""
    words = agent.get("ProgramArguments")
    started = _started_with([str(word) for word in words], variable) if isinstance(words, list) else ""
    variables = agent.get("EnvironmentVariables")
    value = variables.get(variable) if isinstance(variables, dict) else None
    return started or (value if isinstance(value, str) else "")


def definitions_in(folders: Iterable[Path], product: Product) -> Iterator[tuple[str, str, Path]]:
    """Name, home and file of every service definition that sets our home variable, itself or by a file that it names.

    Reads only; what cannot be read is left out.

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
            if variable.encode() not in data and b"EnvironmentFile" not in data:
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
