"""When the restart phase itself breaks: a fresh process of the new code finishes it (facts/update.md 7.10).

The caller sends one JSON object to the process and gets one back. Only what is verified counts as done; whatever is unclear, missing or
late stays owed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import NeduraError
from nedura.fleet.cgroup import scope_prefix
from nedura.fleet.matrix import runs_expected
from nedura.fleet.model import Runtime
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberFailed, MemberRestarted
from nedura.fleet.restart_parts import default_parts
from nedura.fleet.rolling import restart_rest
from nedura.installs import CodeIdentity
from nedura.text import clean

__all__ = ["Recovered", "recover", "recovery_limit", "run_recovery"]

_VERSION: Final = 1
_MAX_ANSWER: Final = 1024 * 1024
_SUPERVISED: Final = frozenset({"systemd", "service", "launchd"})


@attrs.frozen(kw_only=True)
class Recovered:
    """What a recovery can prove.

    Attributes:
        requested: names of the members it was asked about.
        verified: those that serve on the expected code.
        relaunch_attempted: those that nobody supervises; a relaunch was armed, nothing more is claimed.
        failed: those that it could not bring back, with the reason.
        skipped: those that it left alone, with the reason.
        complete: every requested member is verified.
    """

    requested: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    relaunch_attempted: tuple[str, ...] = ()
    failed: Mapping[str, str] = attrs.field(factory=dict)
    skipped: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing stays owed."""
        return set(self.requested) == set(self.verified)


def recovery_limit(members: int) -> float:
    """Seconds that a recovery may take."""
    return max(180.0, 30.0 + 90.0 * members)


def _request(runtimes: Sequence[Runtime], expected: CodeIdentity, settle: float) -> dict[str, Any]:
    names = ("kind", "profile", "pid", "start_time", "supervisor", "unit", "unit_scope", "drain_budget_s")
    return {
        "version": _VERSION,
        "expected": attrs.asdict(expected),
        "settle": settle,
        "members": [
            {**{name: getattr(one, name) for name in names}, "home": str(one.home)} for one in runtimes
        ],
    }


def _members(request: Mapping[str, Any]) -> tuple[Runtime, ...]:
    return tuple(Runtime(**{**record, "home": Path(record["home"])}) for record in request["members"])


async def recover(
    runtimes: Sequence[Runtime],
    expected: CodeIdentity,
    *,
    parts: RestartParts | None = None,
    settle: float = 0.0,
) -> Recovered:
    """Bring members to the expected code: in this process, each failure its own.

    Args:
        runtimes: as the broken phase knew them.
        expected: identity they must run.
        parts: seams; default the real ones.
        settle: seconds that each that is restarted must keep serving.
    """
    parts = default_parts() if parts is None else parts
    verified, owed, skipped = [], [], {}
    for runtime in runtimes:
        now = await parts.look(runtime.home) if runtime.kind == "gateway" else None
        if now is not None and now.state in ("running", "degraded") and runs_expected(expected, now.code):
            verified.append(runtime.name)
        elif runtime.supervisor in parts.supervisors:
            owed.append(
                runtime if now is None else attrs.evolve(runtime, pid=now.pid, start_time=now.start_time)
            )
        else:
            skipped[runtime.name] = f"is restarted by its {runtime.supervisor} owner"
    failed: dict[str, str] = {}
    async with aclosing(restart_rest(owed, expected, parts=parts, settle=settle)) as events:
        async for event in events:
            if isinstance(event, MemberRestarted) and event.verdict == "current":
                verified.append(_name(owed, event.profile, event.member))
            elif isinstance(event, MemberFailed):
                failed[_name(owed, event.profile, event.member)] = event.reason
    attempted = tuple(
        one.name for one in owed if one.supervisor not in _SUPERVISED and one.name not in (*verified, *failed)
    )
    unclear = {
        one.name: "could not be verified" for one in owed if one.name not in (*verified, *failed, *attempted)
    }
    return Recovered(
        requested=tuple(one.name for one in runtimes), verified=tuple(verified), relaunch_attempted=attempted,
        failed={**failed, **unclear}, skipped=skipped,
    )  # fmt: skip


def _name(members: Sequence[Runtime], profile: str, kind: str) -> str:
    return next(one.name for one in members if (one.profile, one.kind) == (profile, kind))


async def run_recovery(
    runtimes: Sequence[Runtime],
    expected: CodeIdentity,
    *,
    interpreter: str = "",
    timeout: float | None = None,
    settle: float = 0.0,
) -> Recovered:
    """`recover` in a fresh process of its own session, and of its own scope when we are in a gateway's control group.

    A process that dies, answers nonsense or takes too long has proven nothing.

    Args:
        runtimes: as the broken phase knew them.
        expected: identity they must run.
        interpreter: Python of the new code; default this one.
        timeout: seconds; default by the number of members.
        settle: as in `recover`.
    """
    names = tuple(one.name for one in runtimes)
    nothing = Recovered(requested=names)
    limit = recovery_limit(len(runtimes)) + settle if timeout is None else timeout
    try:
        prefix = await scope_prefix("nedura-recovery")
        process = await asyncio.create_subprocess_exec(
            *prefix, interpreter or sys.executable, "-m", "nedura.fleet.restart_recovery", start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, NeduraError) as error:
        return attrs.evolve(
            nothing, failed=dict.fromkeys(names, clean(f"the recovery could not be started: {error}"))
        )
    try:
        request = json.dumps(_request(runtimes, expected, settle)).encode()
        out, _ = await asyncio.wait_for(process.communicate(request), limit)
    except TimeoutError:
        return attrs.evolve(
            nothing, failed=dict.fromkeys(names, f"the recovery was not done after {limit:.0f} s")
        )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _believed(out, names, process.returncode or 0)


def _believed(out: bytes, names: tuple[str, ...], status: int) -> Recovered:
    """An answer about exactly the members that were asked for, of a process that ended well; else nothing is proven."""
    try:
        answer = json.loads(out[:_MAX_ANSWER])
        texts = {str(name): clean(reason, 500) for name, reason in answer["failed"].items()}
        skipped = {str(name): clean(reason, 500) for name, reason in answer["skipped"].items()}
        found = Recovered(
            requested=tuple(answer["requested"]), verified=tuple(answer["verified"]),
            relaunch_attempted=tuple(answer["relaunch_attempted"]), failed=texts, skipped=skipped,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        found = Recovered()
    if status != 0 or found.requested != names or not set(found.verified) <= set(names):
        return Recovered(
            requested=names, failed=dict.fromkeys(names, "the recovery gave no answer that proves anything")
        )
    return found


def main() -> int:
    """Entry of the fresh process: one request on stdin, one result on stdout."""
    request = json.loads(sys.stdin.buffer.read(_MAX_ANSWER))
    if request.get("version") != _VERSION:
        return 2
    expected = CodeIdentity(**request["expected"])
    found = asyncio.run(recover(_members(request), expected, settle=float(request.get("settle", 0.0))))
    sys.stdout.write(json.dumps(attrs.asdict(found)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
