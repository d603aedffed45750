"""Definitions as text: systemd unit and launchd plist, escaped per directive. No IO (facts/runtime.md 4.2, 4.3; threats.md 4).

The launcher is the only program they name (decision 46): an update never has to rewrite them.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from nedura.errors import UsageError
from nedura.fleet.drain import EXIT_CONFIG, EXIT_RESTART, DrainSettings
from nedura.fleet.service.place import Account
from nedura.fleet.supervisors.listing import MARKER
from nedura.homes import DEFAULT_PROFILE, PROFILE_NAME
from nedura.product import NEDURA, Product

__all__ = [
    "REVISION",
    "Wanted",
    "drift",
    "escape_environment",
    "escape_exec",
    "escape_path",
    "plist_bytes",
    "read_unit",
    "service_environment",
    "stop_seconds",
    "unit_text",
]

REVISION: Final = "1"
"""Value of our marker; raised when a change must reach installed definitions."""

START_SECONDS: Final = 120
STANDARD_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# `exit 78` must not be restarted, but launchd restarts every failure: 78 becomes 0 here. Signals are passed on.
_LAUNCHD_WRAPPER: Final = (
    '"$@" & child=$!; trap \'kill -TERM "$child"\' TERM; wait "$child"; code=$?; '
    'while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done; '
    f'[ "$code" = {EXIT_CONFIG} ] && exit 0; exit "$code"'
)

# A planned stop is told by SIGINT, so that the member ends with 0 and its state says `stopped`.
_STOP_NOTICE: Final = '-/bin/sh -c \'test -z "$$MAINPID" || kill -INT "$$MAINPID"\''


@attrs.frozen(kw_only=True)
class Wanted:
    """What a definition should start.

    Attributes:
        launcher: program that starts the command.
        home: the home it serves.
        profile: profile name, `default` for none.
        scope: user or system.
        account: whom a system unit runs as.
        path: value of its PATH.
        settings: the member's drain budgets.
        product: names.
    """

    launcher: Path
    home: Path
    profile: str
    account: Account
    path: str
    scope: Literal["user", "system"] = "user"
    settings: DrainSettings = attrs.field(factory=DrainSettings)
    product: Product = NEDURA

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows the launcher. Never `--replace` (#79048)."""
        named = ("-p", self.profile) if self.profile not in (DEFAULT_PROFILE, "custom") else ()
        if named and not PROFILE_NAME.fullmatch(self.profile):
            raise UsageError("A profile's name has only lower-case letters, digits, _ and -.")
        return (*named, "gateway", "run")


def stop_seconds(settings: DrainSettings) -> int:
    """TimeoutStopSec: above every budget of the member's own stop, its watchdog included (facts/runtime.md 5.3, #31981)."""
    drain, cron = settings.drain_s, settings.cron_s + 10 if settings.cron_s > 0 else 0.0
    published = max(60.0, max(drain, cron) + 30, drain + 60 + 10)
    own = max(drain, settings.cron_s) + settings.grace_s + settings.watchdog_s + 10
    return int(max(published, own))


def _plain(text: str, what: str) -> str:
    """Refuse what no definition can hold safely.

    Raises:
        UsageError: control characters, line separators or bytes that are no UTF-8.
    """
    if not text or _CONTROL.search(text):
        raise UsageError(f"{what} holds characters that no service definition may hold.")
    return text


def escape_exec(word: str) -> str:
    """One word of an Exec line: quoted, specifiers and variables doubled."""
    text = (
        _plain(word, "A command")
        .replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("%", "%%")
        .replace("$", "$$")
    )
    return f'"{text}"'


def escape_program(path: Path) -> str:
    """The program of an Exec line: quoted; variables are not expanded in it, so `$` stays.

    Raises:
        UsageError: systemd runs no program whose path has quotes or backslashes, however they are written.
    """
    if any(char in str(path) for char in "\"'\\"):
        raise UsageError(
            "The launcher's path has quotes or backslashes, which systemd refuses.",
            advice="Use another home.",
        )
    text = _plain(str(path), "The launcher's path").replace("%", "%%")
    return f'"{text}"'


def escape_path(path: Path) -> str:
    """A path directive: no quotes; a closing slash keeps a last backslash from joining the next line."""
    text = _plain(str(path), "The home's path").replace("%", "%%")
    return text + "/" if text.endswith(("\\", " ")) else text


def escape_environment(name: str, value: str) -> str:
    """One assignment of an Environment line."""
    text = f"{name}={_plain(value, name)}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def service_environment(wanted: Wanted) -> dict[str, str]:
    """Variables of the service. No secret, nothing that changes what code is loaded."""
    product = wanted.product
    found = {"PATH": wanted.path, product.env("HOME"): str(wanted.home), product.env("SUPERVISED_CHILD"): "1"}
    if wanted.scope == "system":
        found |= {
            "HOME": str(wanted.account.home),
            "USER": wanted.account.name,
            "LOGNAME": wanted.account.name,
        }
    return found


def unit_text(wanted: Wanted) -> str:
    """The systemd unit.

    Raises:
        UsageError: a value cannot be written safely.
    """
    system = wanted.scope == "system"
    manager = f"user@{wanted.account.uid}.service" if system else ""
    target = "multi-user.target" if system else "default.target"
    after = " ".join(filter(None, ("network-online.target", manager)))
    program = " ".join((escape_program(wanted.launcher), *(escape_exec(word) for word in wanted.arguments)))
    owner = (
        [f"User={_plain(wanted.account.name, 'User')}", f"Group={_plain(wanted.account.group, 'Group')}"]
        if system
        else []
    )
    lines = [
        "[Unit]",
        f"Description={wanted.product.name} gateway, profile {wanted.profile}",
        f"After={after}",
        f"Wants={after}",
        "StartLimitIntervalSec=0",
        f"{MARKER}={REVISION}",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        *owner,
        f"ExecStart={program}",
        "ExecReload=/bin/kill -USR1 $MAINPID",
        f"ExecStop={_STOP_NOTICE}",
        f"WorkingDirectory={escape_path(wanted.home)}",
        *(f"Environment={escape_environment(name, value)}" for name, value in service_environment(wanted).items()),
        "Restart=always",
        "RestartSec=5",
        f"RestartForceExitStatus={EXIT_RESTART}",
        f"SuccessExitStatus={EXIT_RESTART}",
        f"RestartPreventExitStatus={EXIT_CONFIG}",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        f"TimeoutStartSec={START_SECONDS}",
        f"TimeoutStopSec={stop_seconds(wanted.settings)}",
        "",
        "[Install]",
        f"WantedBy={target}",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def plist_bytes(wanted: Wanted, label: str) -> bytes:
    """The launchd agent.

    Raises:
        UsageError: a value cannot be written safely.
    """
    for value in (str(wanted.launcher), str(wanted.home), wanted.path, label):
        _plain(value, "A path")
    logs = wanted.home / "logs"
    definition: dict[str, Any] = {
        "Label": label,
        "ProgramArguments": [
            "/bin/sh", "-c", _LAUNCHD_WRAPPER, label, str(wanted.launcher), *wanted.arguments, "--external-supervisor",
        ],
        "WorkingDirectory": str(wanted.home),
        "EnvironmentVariables": service_environment(wanted),
        "LimitLoadToSessionType": ["Aqua", "Background"],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 30,
        "ExitTimeOut": 60,
        "StandardOutPath": str(logs / "gateway.log"),
        "StandardErrorPath": str(logs / "gateway.error.log"),
        MARKER: REVISION,
    }  # fmt: skip
    return plistlib.dumps(definition, sort_keys=False)


def read_unit(text: str) -> dict[str, tuple[str, ...]]:
    """A unit file as `Section.Key` -> values, in order; continued lines are joined, comments dropped, an empty value resets."""
    found: dict[str, tuple[str, ...]] = {}
    section = ""
    for raw in re.sub(r"\\\n", " ", text).splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        key, sign, value = line.partition("=")
        if sign:
            name = f"{section}.{key.strip()}"
            found[name] = (*found.get(name, ()), value.strip()) if value.strip() else ()
    return found


def _meaning(text: str) -> Mapping[str, tuple[str, ...]]:
    """What freshness compares: everything but PATH, whose order differs from shell to shell (C083), and the order of variables."""
    parsed = dict(read_unit(text))
    variables = parsed.pop("Service.Environment", ())
    kept = tuple(sorted(value for value in variables if not value.strip('"').startswith("PATH=")))
    return {**parsed, "Service.Environment": kept}


def drift(installed: str, wanted: str) -> tuple[str, ...]:
    """Keys in which an installed definition of ours differs in meaning from the wanted one."""
    old, new = _meaning(installed), _meaning(wanted)
    return tuple(
        sorted(key.partition(".")[2] for key in {*old, *new} if old.get(key, ()) != new.get(key, ()))
    )
