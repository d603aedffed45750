"""What `systemctl show` says about a unit, and what that means. No IO."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from nedura.fleet.budget import parse_span
from nedura.fleet.drain import EXIT_RESTART

__all__ = ["PROPERTIES", "UnitState", "parse_environment", "parse_show", "split_words", "why_down"]

PROPERTIES: Final = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID", "ExecMainStatus", "ExecMainCode", "NRestarts",
    "ControlGroup", "FragmentPath", "Environment", "TimeoutStopUSec", "TimeoutStartUSec", "RestartUSec", "User", "Type",
    "Restart", "RestartForceExitStatus", "RestartPreventExitStatus", "SuccessExitStatus", "RefuseManualStart",
    "RefuseManualStop", "Transient",
)  # fmt: skip
"""Properties that one `show` asks for. Their order is the manager's; they are read by key."""


@attrs.frozen(kw_only=True)
class UnitState:
    """One unit as its manager sees it.

    Attributes:
        name: full unit name.
        load: `loaded`, `not-found`, `masked`, `bad-setting`, `error`.
        active: `active`, `activating`, `deactivating`, `inactive`, `failed`.
        sub: finer state (`running`, `auto-restart`, `start`, `stop-sigterm`).
        result: why it ended last (`success`, `exit-code`, `timeout`, `start-limit-hit`).
        main_pid: its main process, 0 when there is none.
        exit_status: exit code or signal of the last main process.
        killed: `exit_status` is a signal.
        restarts: restarts that the manager made by itself.
        cgroup: its control group.
        definition: its unit file.
        environment: of the definition and its drop-ins; an EnvironmentFile's content is not in it.
        stop_limit, start_limit: as printed, None when missing.
        restart_delay: seconds between an end and the manager's own restart; infinite when it never comes.
        user: whom a system unit runs as.
        kind: how its manager learns that it is up (`notify`, `simple`, `oneshot`).
        restart: after which ends the manager restarts it (`always`, `on-failure`, `no`); empty when it does not say.
        forced, prevented, successes: exit codes and signals that are restarted in any case, never, or count as success.
        refuses: nobody may start or stop it by hand.
        transient: it has no lasting definition; once it is inactive its manager forgets it.
    """

    name: str
    load: str = ""
    active: str = ""
    sub: str = ""
    result: str = ""
    main_pid: int = 0
    exit_status: int = 0
    killed: bool = False
    restarts: int = 0
    cgroup: str = ""
    definition: str = ""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    stop_limit: str | None = None
    start_limit: str | None = None
    restart_delay: float = 0.0
    user: str = ""
    kind: str = ""
    restart: str = ""
    forced: frozenset[str] = frozenset()
    prevented: frozenset[str] = frozenset()
    successes: frozenset[str] = frozenset()
    refuses: bool = False
    transient: bool = False

    def returns(self, code: int = EXIT_RESTART) -> bool:
        """Whether its manager starts it again by itself after it ends with an exit code; in doubt it does."""
        status = str(code)
        if status in self.prevented or math.isinf(self.restart_delay):
            return False
        if status in self.forced or self.restart in ("", "always"):
            return True
        return self.restart == ("on-success" if status in self.successes else "on-failure")

    def is_forgotten(self, code: int = EXIT_RESTART) -> bool:
        """Whether it is gone for good, definition and all, when it ends with an exit code."""
        return self.transient and str(code) in self.successes and not self.returns(code)

    @property
    def notifies(self) -> bool:
        """Its start job ends with its own word that it is ready."""
        return self.kind in ("notify", "notify-reload")

    @property
    def running(self) -> bool:
        """Its start job is done and a main process is there."""
        return self.active in ("active", "reloading") and self.main_pid > 0

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> UnitState:
        """From the properties of one `show` block; what is missing or odd stays at its default."""
        code = properties.get("ExecMainCode", "")
        return cls(
            name=properties.get("Id", ""),
            load=properties.get("LoadState", ""),
            active=properties.get("ActiveState", ""),
            sub=properties.get("SubState", ""),
            result=properties.get("Result", ""),
            main_pid=_int(properties.get("MainPID")),
            exit_status=_int(properties.get("ExecMainStatus")),
            killed=code in ("2", "3", "killed", "dumped"),
            restarts=_int(properties.get("NRestarts")),
            cgroup=properties.get("ControlGroup", ""),
            definition=properties.get("FragmentPath", ""),
            environment=parse_environment(properties.get("Environment", "")),
            stop_limit=properties.get("TimeoutStopUSec"),
            start_limit=properties.get("TimeoutStartUSec"),
            restart_delay=_delay(properties.get("RestartUSec")),
            user=properties.get("User", ""),
            kind=properties.get("Type", ""),
            restart=properties.get("Restart", ""),
            forced=frozenset(properties.get("RestartForceExitStatus", "").split()),
            prevented=frozenset(properties.get("RestartPreventExitStatus", "").split()),
            successes=frozenset(properties.get("SuccessExitStatus", "").split()),
            refuses="yes" in (properties.get("RefuseManualStart"), properties.get("RefuseManualStop")),
            transient=properties.get("Transient") == "yes",
        )


def _delay(text: str | None) -> float:
    if text is not None and text.strip() in ("infinity", str(2**64 - 1)):
        return math.inf
    return parse_span(text) or 0.0


def _int(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else 0


def parse_show(text: str) -> Iterator[UnitState]:
    """Units of a `systemctl show` answer: blocks of `Key=value` lines, blank lines between them."""
    for block in re.split(r"\n[ \t\r]*\n", text.strip("\n")):
        properties = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        if properties.get("Id"):
            yield UnitState.of(properties)


_WORD: Final = re.compile(
    r"""[ \t\r\n]*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\$'(?:\\.|[^'\\])*'|(?:\\.|[^ \t\r\n\\])+)""",
    re.DOTALL,
)
"""The manager's blanks are these four; a no-break or ideographic space is a letter of a path to it."""
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}


def _unescape(text: str) -> str:
    """C escapes of systemd's quoting; byte escapes are UTF-8."""
    out = bytearray()
    position = 0
    for match in _ESCAPE.finditer(text):
        out += text[position : match.start()].encode("utf-8", "surrogateescape")
        token = match[1]
        if token[0] == "x" and len(token) == 3:
            out.append(int(token[1:], 16))
        elif len(token) == 3:
            out.append(int(token, 8) & 0xFF)
        else:
            out += _NAMED.get(token, token).encode("utf-8", "surrogateescape")
        position = match.end()
    out += text[position:].encode("utf-8", "surrogateescape")
    return out.decode("utf-8", "surrogateescape")


def split_words(line: str) -> list[str]:
    """Words of a line as the manager quotes them."""
    words = []
    for match in _WORD.finditer(line):
        word = match[1]
        if word.startswith("$'"):
            word = word[1:]
        if word[:1] in "\"'" and word[-1:] == word[:1] and len(word) > 1:
            word = word[1:-1]
        words.append(_unescape(word))
    return words


def parse_environment(line: str) -> dict[str, str]:
    """`A=1 "B=x y" EMPTY=` as `systemctl show` quotes it; later assignments win (drop-ins come last)."""
    found: dict[str, str] = {}
    for word in split_words(line):
        name, sign, value = word.partition("=")
        if sign:
            found[name] = value
    return found


_STATUS: Final[Mapping[int, str]] = {
    75: "it asked to be restarted",
    78: "it refuses its configuration; correct the configuration, the manager does not restart it",
    126: "its program cannot be run",
    127: "its program was not found",
    69: "its code was removed under it",
    200: "its working directory cannot be entered",
    203: "its program cannot be run (missing, or not executable)",
    209: "its standard output cannot be opened",
    216: "its group does not exist",
    217: "its user does not exist",
    218: "its capabilities cannot be set",
    226: "its file system namespace cannot be made",
    228: "its system call filter cannot be set",
}
_RESULT: Final[Mapping[str, tuple[str, str]]] = {
    "timeout": ("ready", "it did not become ready (or did not stop) in its own time limit"),
    "protocol": ("ready", "it ended without saying that it is ready"),
    "watchdog": ("boot", "its watchdog ended it"),
    "core-dump": ("boot", "it crashed"),
    "oom-kill": ("boot", "the kernel ended it for want of memory"),
    "exec-condition": ("start", "a condition in its definition (ExecCondition) was not met"),
    "resources": ("boot", "the manager had not the resources to start it"),
    "start-limit-hit": ("start_limit", "it ended too often, so the manager does not start it any more"),
}
_LOAD: Final[Mapping[str, tuple[str, str]]] = {
    "not-found": ("missing", "its unit file is gone"),
    "masked": ("masked", "it is masked, so the manager will not start it"),
    "bad-setting": ("definition", "its unit file has a setting that the manager refuses"),
    "error": ("definition", "its unit file cannot be loaded"),
}


def why_down(state: UnitState) -> tuple[str, str]:
    """Why a unit does not run: a closed token, and words (C074: the real status, decoded)."""
    if state.load in _LOAD:
        return _LOAD[state.load]
    if state.result in _RESULT:
        return _RESULT[state.result]
    if state.killed or state.result == "signal":
        return "boot", f"it was ended by signal {state.exit_status}"
    if state.exit_status:
        words = _STATUS.get(state.exit_status, "it ended")
        return ("config" if state.exit_status == 78 else "boot"), f"{words} (exit code {state.exit_status})"
    if state.active in ("activating", "deactivating", "reloading"):
        return "ready", f"it is still {state.active} ({state.sub})"
    return (
        "start",
        f"it is {state.active or 'in no known state'} ({state.sub or state.result or 'no reason given'})",
    )
