"""Windows: gateways are paused before a swap and resumed after it, by a token that travels with the update (facts/update.md 5.7).

Only the logic, as data: no Windows was at hand. Nothing here does IO; whoever drives it supplies what was discovered and carries out
the steps that come out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from nedura.errors import UsageError
from nedura.fleet.identity import classify
from nedura.homes import DEFAULT_PROFILE, PROFILE_NAME
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = [
    "Discovered",
    "PauseStep",
    "PauseToken",
    "ResumeStep",
    "after_resume",
    "pause_steps",
    "pause_token",
    "pause_wait",
    "resume_steps",
    "task_name",
    "task_xml",
]

SERVICE_STOP_SECONDS: Final = 30.0
"""How long the service control manager gets to stop one service."""


@attrs.frozen(kw_only=True)
class Discovered:
    """What runs before the pause.

    Attributes:
        profiles: profile -> pid of a gateway that is proven to be its.
        unmapped: gateways whose profile could not be told: pid -> argument list.
        services: services of the control manager that are ours by name and binary path -> profile.
        autostart: a task or Startup entry of ours is installed.
        desktop_owns: a live desktop app owns the gateways' life cycle (#76129: owning, not merely serving).
    """

    profiles: Mapping[str, int] = attrs.field(factory=dict)
    unmapped: Mapping[int, Sequence[str]] = attrs.field(factory=dict)
    services: Mapping[str, str] = attrs.field(factory=dict)
    autostart: bool = False
    desktop_owns: bool = False


@attrs.frozen(kw_only=True)
class PauseToken:
    """What was paused, as it travels in the request (`windows_resume`) and back in the result.

    Attributes:
        resume_needed: anything has to be started again.
        profiles: profile -> pid that was stopped.
        unmapped_pids: pids without a profile that were stopped.
        unmapped: the same with their argument lists.
        cold_start_if_installed: nothing ran, but autostart is installed: start it.
        services: services that were stopped.
        expected_services: services that must run at the end.
        restarted_services: those that were started again already.
        service_profiles: service -> profile.
    """

    resume_needed: bool = False
    profiles: Mapping[str, int] = attrs.field(factory=dict)
    unmapped_pids: tuple[int, ...] = ()
    unmapped: tuple[Mapping[str, Any], ...] = ()
    cold_start_if_installed: bool = False
    services: tuple[str, ...] = ()
    expected_services: tuple[str, ...] = ()
    restarted_services: tuple[str, ...] = ()
    service_profiles: Mapping[str, str] = attrs.field(factory=dict)

    def wire(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {field.name: _plain(getattr(self, field.name)) for field in attrs.fields(PauseToken)}

    @classmethod
    def parse(cls, value: Any) -> PauseToken:
        """Read a token that another version wrote; what is odd is dropped, nothing is invented."""
        if not isinstance(value, Mapping):
            return cls()
        return cls(
            resume_needed=value.get("resume_needed") is True,
            profiles={
                name: pid
                for name, pid in _pairs(value.get("profiles"))
                if PROFILE_NAME.fullmatch(name) and _pid(pid)
            },
            unmapped_pids=tuple(pid for pid in _items(value.get("unmapped_pids")) if _pid(pid)),
            unmapped=tuple(
                {"pid": item["pid"], "argv": [str(word) for word in _items(item.get("argv"))]}
                for item in _items(value.get("unmapped"))
                if isinstance(item, Mapping) and _pid(item.get("pid"))
            ),
            cold_start_if_installed=value.get("cold_start_if_installed") is True,
            services=_names(value.get("services")),
            expected_services=_names(value.get("expected_services")),
            restarted_services=_names(value.get("restarted_services")),
            service_profiles={
                clean(name, 256): clean(profile, 64)
                for name, profile in _pairs(value.get("service_profiles"))
            },
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return [(str(key), item) for key, item in value.items()] if isinstance(value, Mapping) else []


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _names(value: Any) -> tuple[str, ...]:
    return tuple(clean(name, 256) for name in _items(value) if isinstance(name, str) and name)


def _pid(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 4 < value < 2**32


PauseAction = Literal["mark", "ask", "wait", "kill", "stop_service"]


@attrs.frozen(kw_only=True)
class PauseStep:
    """One step of a pause, in order.

    Attributes:
        action: write the planned-stop mark, ask the control pipe to pause, wait for the ends, force what survives, stop a service.
        pids: whom it is about.
        service: the service.
        seconds: how long it may take.
    """

    action: PauseAction
    pids: tuple[int, ...] = ()
    service: str = ""
    seconds: float = 0.0


def pause_wait(configured: float, declared: float | None) -> float:
    """Seconds that gateways get to end by themselves: the configured drain, at least 1 s, and what they declare plus 10 s."""
    return max(configured, 1.0, declared + 10.0 if declared is not None and 0 <= declared < 86_400 else 0.0)


def pause_steps(
    found: Discovered, *, configured: float, declared: float | None, ancestors: Collection[int]
) -> tuple[PauseStep, ...]:
    """What to do to pause everything. Nothing above the updater is ever forced: that would end the updater's own tree (#98814).

    Args:
        found: what runs.
        configured: the configured drain in seconds.
        declared: the longest drain that an asked gateway declared, None when none did.
        ancestors: pids that the updater runs under.
    """
    mapped = tuple(sorted(found.profiles.values()))
    everyone = tuple(pid for pid in (*mapped, *sorted(found.unmapped)) if pid not in ancestors)
    steps = [PauseStep(action="mark", pids=mapped), PauseStep(action="ask", pids=mapped)] if mapped else []
    if everyone:
        steps.append(PauseStep(action="wait", pids=everyone, seconds=pause_wait(configured, declared)))
        steps.append(PauseStep(action="kill", pids=everyone))
    steps += [
        PauseStep(action="stop_service", service=name, seconds=SERVICE_STOP_SECONDS)
        for name in sorted(found.services)
    ]
    return tuple(steps)


def pause_token(found: Discovered) -> PauseToken:
    """The token of a pause that was carried out."""
    services = tuple(sorted(found.services))
    anything = bool(found.profiles or found.unmapped or services)
    return PauseToken(
        resume_needed=anything,
        profiles=dict(found.profiles),
        unmapped_pids=tuple(sorted(found.unmapped)),
        unmapped=tuple({"pid": pid, "argv": list(argv)} for pid, argv in sorted(found.unmapped.items())),
        cold_start_if_installed=not anything and found.autostart and not found.desktop_owns,
        services=services,
        expected_services=services,
        service_profiles=dict(found.services),
    )


@attrs.frozen(kw_only=True)
class ResumeStep:
    """One start.

    Attributes:
        action: `start_service`, `start_profile` (our launcher), or `start_installed` (the task or Startup entry).
        name: service or profile.
    """

    action: Literal["start_service", "start_profile", "start_installed"]
    name: str = ""


def resume_steps(
    token: PauseToken, *, running: Collection[str], autostart: bool, product: Product = NEDURA
) -> tuple[tuple[ResumeStep, ...], tuple[str, ...]]:
    """What to start, and what cannot be started by us.

    A recorded argument list is parsed, never executed (threats.md 4): it only tells which profile to start through our launcher.

    Args:
        token: what was paused.
        running: profiles that run already; nothing is started twice.
        autostart: a task or Startup entry is installed now.
        product: names.
    """
    steps = [
        ResumeStep(action="start_service", name=name)
        for name in token.expected_services
        if name not in token.restarted_services and token.service_profiles.get(name, "") not in running
    ]
    by_service = {token.service_profiles.get(name, "") for name in token.services}
    wanted = dict.fromkeys(name for name in token.profiles if name not in by_service)
    lost = []
    for item in token.unmapped:
        verdict = classify(
            [str(word) for word in _items(item.get("argv"))], product=product, platform="win32"
        )
        if verdict.gateway_run:
            wanted[verdict.profile or DEFAULT_PROFILE] = None
        else:
            lost.append(f"pid {item.get('pid')}")
    steps += [ResumeStep(action="start_profile", name=name) for name in wanted if name not in running]
    if token.cold_start_if_installed and autostart and not running:
        steps.append(ResumeStep(action="start_installed"))
    return tuple(steps), tuple(lost)


def after_resume(token: PauseToken, done: Collection[ResumeStep]) -> PauseToken:
    """The token after some steps succeeded: what the parent then has to do is only the rest, so nothing is started twice."""
    services = {step.name for step in done if step.action == "start_service"}
    profiles = {step.name for step in done if step.action == "start_profile"}
    restarted = (*token.restarted_services, *(name for name in token.expected_services if name in services))
    left = {name: pid for name, pid in token.profiles.items() if name not in profiles}
    unmapped = tuple(item for item in token.unmapped if _profile_of(item) not in profiles)
    cold = token.cold_start_if_installed and not any(step.action == "start_installed" for step in done)
    owed = set(token.expected_services) - set(restarted)
    return attrs.evolve(
        token,
        restarted_services=tuple(dict.fromkeys(restarted)),
        profiles=left,
        unmapped=unmapped,
        unmapped_pids=tuple(item["pid"] for item in unmapped),
        cold_start_if_installed=cold,
        resume_needed=bool(owed or left or unmapped),
    )


def _profile_of(item: Mapping[str, Any]) -> str:
    verdict = classify([str(word) for word in _items(item.get("argv"))], platform="win32")
    return (verdict.profile or DEFAULT_PROFILE) if verdict.gateway_run else ""


def task_name(suffix: str) -> str:
    """Name of a home's logon task."""
    return f"Nedura_Gateway{'_' if suffix else ''}{suffix}"


def task_xml(launcher: str, arguments: Sequence[str], folder: str, user: str) -> str:
    """Definition of the logon task (facts/runtime.md 4.4). The action is a script host, for a console would end it at logon (#45599).

    Args:
        launcher: the script that wscript runs.
        arguments: what it is told.
        folder: working folder.
        user: domain and name, with a backslash between them.

    Raises:
        UsageError: a value has control characters or quotes.
    """
    from xml.sax.saxutils import escape  # late: it brings urllib.request and email along

    for value in (launcher, folder, user, *arguments):
        if any(ord(char) < 32 or char == '"' for char in value):
            raise UsageError("A path holds characters that no task may hold.")
    words = " ".join(["//B", "//Nologo", *(f'"{word}"' for word in (launcher, *arguments))])
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers><LogonTrigger><Enabled>true</Enabled><UserId>{escape(user)}</UserId><Delay>PT30S</Delay></LogonTrigger></Triggers>
  <Principals><Principal id="Author"><UserId>{escape(user)}</UserId><LogonType>InteractiveToken</LogonType>\
<RunLevel>LeastPrivilege</RunLevel></Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>999</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author"><Exec><Command>wscript.exe</Command><Arguments>{escape(words)}</Arguments>\
<WorkingDirectory>{escape(folder)}</WorkingDirectory></Exec></Actions>
</Task>
"""
