"""Scenes with the real gateway under a real user manager: `real-systemd.sh user -n -- python -m tests.system.fleet.scenes NAME`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nedura.fleet import ask_now, lock_holder
from nedura.fleet.processes import system_processes

ROOT = Path(__file__).resolve().parents[3]
SCENES: Final[dict[str, Callable[[], None]]] = {}
HANDLER = "nedura.testing.handlers:slow_words"


def scene(function: Callable[[], None]) -> Callable[[], None]:
    SCENES[function.__name__] = function
    return function


def home() -> Path:
    return Path(os.environ["HOME"])


def systemctl(*arguments: str, check: bool = True) -> str:
    return subprocess.run(
        ["systemctl", "--user", *arguments], check=check, capture_output=True, text=True, timeout=40
    ).stdout.strip()


def write_unit(name: str, command: str, *environment: str, **service: str) -> None:
    rules = {
        "Type": "notify", "NotifyAccess": "all", "Restart": "always", "RestartSec": "0.2", "RestartForceExitStatus": "75",
        "SuccessExitStatus": "75", "RestartPreventExitStatus": "78", "KillMode": "mixed", "TimeoutStartSec": "20", **service,
    }  # fmt: skip
    lines = ["[Unit]", "StartLimitIntervalSec=0", "[Service]", f"ExecStart={command}"]
    lines += [f"{key}={value}" for key, value in rules.items()]
    lines += [f'Environment="{pair}"' for pair in (f"PYTHONPATH={ROOT}", *environment)]
    folder = home() / ".config/systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    systemctl("daemon-reload")


def nedura(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nedura_cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, **environ},
    )


def until(condition: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.05)
    return value


def start_time(pid: int) -> int | None:
    stat = system_processes().stat(pid)
    return stat.start_time if stat is not None and not stat.dead else None


def serving(folder: Path, *, other_than: int = 0) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        answer = ask_now(folder, "identify")
        good = answer and answer["gateway_state"] == "running" and answer["pid"] != other_than
        return answer if good else None

    found: dict[str, Any] = until(look, f"a gateway on {folder}")
    return found


def gateway_command(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "nedura_gateway", "--handler", HANDLER, *arguments])


OTHER_PRODUCT = """
import os, signal, sys, time
log = open(os.path.join(os.environ["HERMES_HOME"], "signals"), "a")
def note(number, frame): log.write(f"{number}\\n"); log.flush()
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, note)
while True: time.sleep(0.1)
"""


@contextmanager
def other_product(ours: bool) -> Iterator[tuple[dict[str, str], int]]:
    """`hermes-gateway.service` of the other product on `~/.hermes` of an account; yields the account's variables and its pid.

    Whatever happens inside, its pid, its start time and its files must stay, and no signal may arrive.
    """
    with tempfile.TemporaryDirectory(
        prefix="nedura-scene-", dir="/run"
    ) as folder:  # no temporary home: verbs act on it
        account, theirs = Path(folder), Path(folder) / ".hermes"
        package = account / "tree" / "hermes_cli"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "main.py").write_text(OTHER_PRODUCT)
        theirs.mkdir()
        (theirs / "gateway.pid").write_text("{}")
        (theirs / "config.yaml").write_text("gateway: {}\n")
        if ours:
            (account / ".nedura").mkdir(mode=0o700)
        write_unit(
            "hermes-gateway.service", f"{shlex.quote(sys.executable)} -m hermes_cli.main gateway run",
            f"PYTHONPATH={account / 'tree'}", f"HERMES_HOME={theirs}", f"HOME={account}", Type="simple",
        )  # fmt: skip
        systemctl("start", "hermes-gateway.service")
        pid = int(systemctl("show", "-P", "MainPID", "hermes-gateway.service"))
        born, before = start_time(pid), shape(theirs)
        assert born is not None
        yield {"HOME": folder, "XDG_CONFIG_HOME": str(home() / ".config")}, pid
        assert (int(systemctl("show", "-P", "MainPID", "hermes-gateway.service")), start_time(pid)) == (
            pid,
            born,
        )
        assert not (theirs / "signals").read_text(), "a signal arrived"
        assert shape(theirs) == before
        os.kill(pid, 1)
        until(lambda: (theirs / "signals").read_text(), "the trap")  # and the trap does work
        systemctl("kill", "-s", "KILL", "hermes-gateway.service")


def shape(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir() if path.name != "signals")


def touch_nothing(
    verbs: list[list[str]], *, ours: bool
) -> dict[tuple[str, ...], subprocess.CompletedProcess[str]]:
    """Run verbs beside the other product, all at once: none of them may touch it."""
    with other_product(ours) as (account, pid):
        born = start_time(pid)
        results = {}
        with ThreadPoolExecutor(4) as pool:
            for words, result in zip(
                verbs, pool.map(lambda words: nedura(*words, **account), verbs), strict=True
            ):
                sys.stdout.write(
                    f"{' '.join(words)}: exit {result.returncode}: {result.stderr.strip()[:100]}\n"
                )
                assert start_time(pid) == born, f"{words} touched it: {result.stdout}{result.stderr}"
                results[tuple(words)] = result
        return results


VERBS: Final = [
    ["gateway", "start", "--all"], ["gateway", "restart", "--all"], ["gateway", "stop", "--all"], ["gateway", "restart"],
    ["gateway", "stop"], ["gateway", "uninstall"], ["gateway", "migrate-legacy"], ["gateway", "status", "--deep"],
    ["gateway", "list"], ["update", "--plan"], ["update", "--check"], ["update"], ["fleet", "status", "--json"],
]  # fmt: skip


def names_it(result: subprocess.CompletedProcess[str]) -> bool:
    status = json.loads(result.stdout)
    return ("hermes-gateway.service", "another product") in [
        (item["name"], item["reason"]) for item in status["foreign"]
    ]


@scene
def another_product_is_untouched_without_a_home_of_ours() -> None:
    """The real unit of the other product on `~/.hermes`, no `~/.nedura`: its pid and start time stay through every verb."""
    results = touch_nothing(VERBS, ours=False)
    assert names_it(results["fleet", "status", "--json"])


@scene
def another_product_is_untouched_beside_a_home_of_ours() -> None:
    results = touch_nothing(VERBS, ours=True)
    assert names_it(results["fleet", "status", "--json"])
    assert results["gateway", "list"].returncode == 0
    assert "hermes-gateway.service" in results["gateway", "list"].stdout


@scene
def a_unit_is_ready_drains_and_comes_back() -> None:
    """Type=notify: start returns when the gateway serves; SIGUSR1 is 75 and comes back; 78 stays down."""
    ours = home() / ".nedura"
    ours.mkdir()
    write_unit("nedura-gateway.service", gateway_command(), f"NEDURA_HOME={ours}", WatchdogSec="2")
    systemctl("start", "nedura-gateway.service")
    answer = ask_now(ours, "identify")
    assert answer is not None, "start returned before the gateway served"
    assert (answer["gateway_state"], answer["supervisor"], answer["unit"], answer["unit_scope"]) == (
        "running", "systemd", "nedura-gateway.service", "user",
    )  # fmt: skip
    os.kill(answer["pid"], 10)
    second = serving(ours, other_than=answer["pid"])
    assert systemctl("show", "-P", "NRestarts", "nedura-gateway.service") == "1"
    time.sleep(3)  # longer than the watchdog's leash
    assert serving(ours)["pid"] == second["pid"], "an idle gateway feeds the watchdog"
    (row,) = json.loads(nedura("fleet", "status", "--json").stdout)["runtimes"]
    assert (row["unit"], row["restart_via"]) == ("nedura-gateway.service", "systemd")
    (ours / "config.yaml").write_text("a: [")
    os.kill(second["pid"], 10)
    until(
        lambda: (
            systemctl("show", "-P", "ExecMainStatus", "nedura-gateway.service") == "78"
            and systemctl("is-active", "nedura-gateway.service", check=False) == "failed"
        ),
        "a permanent refusal",
    )


@scene
def a_wrapper_is_the_main_process() -> None:
    """MainPID is `env -S ...; sh`, the gateway its child: found by cgroup, drained by its lock, never by MainPID (#66900)."""
    ours = home() / ".nedura"
    ours.mkdir()
    script = home() / "wrapper.sh"
    script.write_text(f"#!/bin/sh\n{gateway_command()} &\nwait $!\nexit $?\n")
    script.chmod(0o755)
    write_unit("nedura-gateway.service", str(script), f"NEDURA_HOME={ours}")
    systemctl("start", "nedura-gateway.service")
    answer = serving(ours)
    main = int(systemctl("show", "-P", "MainPID", "nedura-gateway.service"))
    assert answer["pid"] != main
    assert lock_holder(ours).pid == answer["pid"]
    status = json.loads(nedura("fleet", "status", "--json").stdout)
    (row,) = status["runtimes"]
    assert (row["pid"], row["unit"], row["supervisor"]) == (
        answer["pid"],
        "nedura-gateway.service",
        "systemd",
    )
    assert all(item["name"] != "nedura-gateway.service" for item in status["foreign"])
    found = json.loads(nedura("fleet", "explain", "--json", str(answer["pid"])).stdout)
    assert (found["gateway_run"], found["supervisor"]) == (True, "systemd")
    assert json.loads(nedura("fleet", "explain", "--json", str(main)).stdout)["gateway_run"] is False


@scene
def an_odd_unit_name_is_found_by_cgroup() -> None:
    ours = home() / ".nedura"
    ours.mkdir()
    write_unit("mybot.service", gateway_command(), f"NEDURA_HOME={ours}")
    systemctl("start", "mybot.service")
    answer = serving(ours)
    assert (answer["supervisor"], answer["unit"]) == ("systemd", "mybot.service")
    (row,) = json.loads(nedura("fleet", "status", "--json").stdout)["runtimes"]
    assert (row["unit"], row["restart_via"]) == ("mybot.service", "systemd")


@scene
def what_a_session_starts_is_manual() -> None:
    """A service that is no gateway's starts one as a child of a child: its manager does not supervise it (#108244)."""
    ours = home() / ".nedura"
    ours.mkdir()
    script = home() / "session.sh"
    child = shlex.quote(f"{gateway_command()} & sleep 600")
    script.write_text(f"#!/bin/sh\nsh -c {child} &\nsleep 600\n")
    script.chmod(0o755)
    write_unit("builder.service", str(script), f"NEDURA_HOME={ours}", Type="simple")
    systemctl("start", "builder.service")
    answer = serving(ours)
    assert (answer["supervisor"], answer["unit"]) == ("manual", "")
    systemctl("kill", "-s", "KILL", "builder.service")


@scene
def two_units_on_one_home() -> None:
    """One serves, the other is refused for good (78), tries once and hurts nobody."""
    ours = home() / ".nedura"
    ours.mkdir()
    write_unit("nedura-gateway.service", gateway_command(), f"NEDURA_HOME={ours}")
    systemctl("start", "nedura-gateway.service")
    first = serving(ours)
    write_unit("nedura-gateway-twin.service", gateway_command(), f"NEDURA_HOME={ours}")
    systemctl("start", "--no-block", "nedura-gateway-twin.service")
    until(
        lambda: systemctl("show", "-P", "ExecMainStatus", "nedura-gateway-twin.service") == "78",
        "the refusal",
    )
    assert systemctl("show", "-P", "NRestarts", "nedura-gateway-twin.service") == "0"
    assert serving(ours)["pid"] == first["pid"]


def main(name: str) -> int:
    SCENES[name]()
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
