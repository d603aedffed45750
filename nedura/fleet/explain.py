"""What a process is taken for, and why: the first thing an operator needs when a verdict looks wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from nedura.fleet.claim import lock_holder
from nedura.fleet.identity import Classification, classify, display_command
from nedura.fleet.processes import Processes, system_processes
from nedura.fleet.scope import home_of_process, homes_of
from nedura.fleet.supervision import supervision_of
from nedura.homes import root_home
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = ["Explanation", "explain_argv", "explain_pid"]


@attrs.frozen(kw_only=True)
class Explanation:
    """A process, as the fleet sees it.

    Attributes:
        gateway_run: whether it runs the chat gateway; None when that cannot be told.
        profile: profile it names; None when only its environment or record can tell.
        subcommand: top-level subcommand of a nedura command.
        home: home it runs on, by its live environment; None for an argument list alone.
        supervisor: who starts it again; None when unknown.
        why: one sentence.
        command: its command line for people, secrets masked, cut.
    """

    gateway_run: bool | None
    profile: str | None = None
    subcommand: str | None = None
    home: str | None = None
    supervisor: str | None = None
    why: str = ""
    command: str = ""

    def record(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "gateway_run": self.gateway_run,
            "profile": self.profile,
            "subcommand": self.subcommand,
            "home": self.home,
            "supervisor": self.supervisor,
            "why": self.why,
        }

    @property
    def copy_terminal(self) -> str:
        """Lines for people."""
        word = {True: "yes", False: "no", None: "cannot be told"}[self.gateway_run]
        rows = [
            ("runs the gateway", word),
            ("profile", self.profile or "only its environment or record can tell"),
            ("subcommand", self.subcommand or "none"),
            ("home", self.home or "unknown"),
            ("supervisor", self.supervisor or "unknown"),
            ("why", self.why),
        ]
        return "\n".join([self.command, *(f"  {name:<17} {value}" for name, value in rows)])


def _from(verdict: Classification, argv: Sequence[str], **more: Any) -> Explanation:
    base = Explanation(
        gateway_run=verdict.gateway_run,
        profile=clean(verdict.profile, 80) if verdict.profile is not None else None,
        subcommand=clean(verdict.subcommand, 80) if verdict.subcommand is not None else None,
        why=verdict.why,
        command=display_command(argv),
    )
    return attrs.evolve(base, **more)


def explain_argv(
    argv: Sequence[str], *, product: Product = NEDURA, platform: str = sys.platform
) -> Explanation:
    """Explain an argument list alone.

    Args:
        argv: the full list.
        product: names to go by.
        platform: system that it runs on.
    """
    return _from(classify(argv, product=product, platform=platform), argv)


def explain_pid(pid: int, *, processes: Processes | None = None, product: Product = NEDURA) -> Explanation:
    """Explain a live process.

    Args:
        pid: its pid.
        processes: the process table.
        product: names to go by.
    """
    processes = system_processes() if processes is None else processes
    stat = processes.stat(pid)
    if stat is None or stat.dead:
        what = (
            "There is no process with this pid." if stat is None else "It is a zombie: dead, not yet reaped."
        )
        return Explanation(gateway_run=False, why=what, command=f"pid {pid}")
    argv = processes.argv(pid)
    if argv is None:
        return Explanation(gateway_run=None, why="Its command line may not be read.", command=f"pid {pid}")
    environ = processes.environ(pid)
    verdict = classify(argv, product=product)
    home = (
        home_of_process(pid, environ, product) if verdict.entry else (environ or {}).get(product.env("HOME"))
    )
    if home and verdict.may_host:
        home = _claimed_home(pid, Path(home), processes) or home
    supervisor = None
    if environ is not None:
        supervisor = supervision_of(
            environ, argv, pid=pid, ppid=stat.ppid, cgroup=processes.cgroup(pid), product=product
        ).supervisor
    found = _from(verdict, argv, home=clean(home, 300) or None, supervisor=supervisor)
    return found if verdict.gateway_run else _by_claim(found, pid, home, processes)


def _claimed_home(pid: int, named: Path, processes: Processes) -> str | None:
    """The home whose claim it holds: a profile flag or a sticky profile picks one beside the home it was started with."""
    homes = homes_of(root_home(named), named)
    return next((str(home) for home in homes if lock_holder(home, processes).pid == pid), None)


def _by_claim(found: Explanation, pid: int, home: str | None, processes: Processes) -> Explanation:
    """A renamed runtime, or a host application's own daemon: its claim of a home speaks for it."""
    if home is None or lock_holder(Path(home), processes).pid != pid:
        return found
    return attrs.evolve(found, gateway_run=True, why=f"It holds the gateway claim of its home. {found.why}")
