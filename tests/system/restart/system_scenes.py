"""Scenes under a real system manager with logind and an ordinary user, through the real command, on a throw-away root.

`real-systemd.sh system -n -- python -m tests.system.restart.system_scenes NAME`
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pexpect

from tests.integration.restart.manual import ROOT, TOY

SCENES: Final[dict[str, Callable[[], None]]] = {}
USER: Final = "nedura-test"
HOME: Final = Path("/home") / USER / ".nedura"
UNIT: Final = "nedura-gateway.service"


def scene(function: Callable[[], None]) -> Callable[[], None]:
    SCENES[function.__name__] = function
    return function


def sh(*argv: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, **environ}, timeout=60
    )
    assert not check or result.returncode == 0, (argv, result.stdout, result.stderr)
    return result


def user_argv(*argv: str, **environ: str) -> list[str]:
    uid = Path(f"/home/{USER}").stat().st_uid
    variables = {
        "HOME": f"/home/{USER}", "USER": USER, "LOGNAME": USER, "XDG_RUNTIME_DIR": f"/run/user/{uid}",
        "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT}/renderers/cli:{ROOT}/renderers/gateway", **environ,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in variables.items()]
    return ["runuser", "-u", USER, "--", "env", "-i", *words, *argv]


def as_user(*argv: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    return sh(*user_argv(*argv, **environ), check=check)


def nedura(*argv: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    return as_user(sys.executable, "-m", "nedura_cli", *argv, check=check, **environ)


def nedura_as_root(*argv: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT}:{ROOT}/renderers/cli:{ROOT}/renderers/gateway"
    return sh(
        sys.executable,
        "-m",
        "nedura_cli",
        *argv,
        check=check,
        PYTHONPATH=path,
        NEDURA_HOME=str(HOME),
        **environ,
    )


def events(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def kinds(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [event["kind"] for event in events(result)]


def machine() -> None:
    """An ordinary user with a lingering manager, who may run this Python, and a home with a launcher."""
    for folder in reversed(Path(os.path.realpath(sys.executable)).parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    sh("useradd", "-m", USER)
    sh("systemctl", "start", "dbus", "systemd-logind")
    sh("loginctl", "enable-linger", USER)
    uid = Path(f"/home/{USER}").stat().st_uid
    for _ in range(100):
        if Path(f"/run/user/{uid}/systemd/private").exists():
            break
        time.sleep(0.05)
    launcher = shlex.quote(f'#!/bin/sh\nexec env PYTHONPATH={shlex.quote(str(ROOT))} {TOY} "$@"\n')
    as_user(
        "sh",
        "-c",
        f"umask 077; mkdir -p {HOME}/bin; printf %s {launcher} > {HOME}/bin/nedura; chmod 755 {HOME}/bin/nedura",
    )
    as_user("sh", "-c", f"echo real > {HOME}/version")


def main_pid(scope: str = "") -> str:
    if scope == "system":
        return sh("systemctl", "show", UNIT, "-p", "MainPID", "--value").stdout.strip()
    return as_user("systemctl", "--user", "show", UNIT, "-p", "MainPID", "--value").stdout.strip()


@scene
def the_command_as_an_ordinary_user() -> None:
    installed = nedura("gateway", "install", "--json")
    assert [event.get("change") for event in events(installed)] == ["installed", "started"]
    first = main_pid()
    restarted = nedura("gateway", "restart", "--json")
    assert kinds(restarted)[-1] == "member_restarted"
    assert events(restarted)[-1]["verdict"] == "current"
    assert main_pid() != first
    row = events(nedura("gateway", "status", "--json"))[0]
    assert (row["state"], row["enabled"], row["outdated"]) == ("active", True, [])
    assert kinds(nedura("gateway", "list", "--json"))[0] == "service_status"
    assert events(nedura("gateway", "stop", "--json"))[0]["change"] == "stopped"
    again = nedura("gateway", "restart", "--json")
    assert events(again)[-1]["change"] == "started"
    assert events(nedura("gateway", "uninstall", "--json"))[0]["change"] == "removed"
    missing = nedura("gateway", "start", check=False)
    assert missing.returncode == 2
    assert "nedura gateway install" in missing.stderr


def setup(*answers: str) -> str:
    """`gateway setup` on a terminal; what it said."""
    words = user_argv(sys.executable, "-m", "nedura_cli", "--plain", "gateway", "setup", TERM="xterm")
    child = pexpect.spawn(words[0], words[1:], timeout=30, encoding="utf-8", dimensions=(40, 160))
    told = ""
    for answer in answers:
        child.expect(re.escape("[Y/n] "))
        told += str(child.before)
        child.sendline(answer)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, told + str(child.before)
    return told + str(child.before)


@scene
def setup_asks_and_installs() -> None:
    """Nothing happens on a no; the answers are kept; written again it is on request only; the log is shown."""
    assert "Nothing was changed" in setup("n")
    assert events(nedura("gateway", "status", "--json"))[0]["state"] == "not installed"
    told = setup("y", "n", "n")
    assert "installed" in told
    row = events(nedura("gateway", "status", "--json"))[0]
    assert (row["state"], row["enabled"], row["pid"]) == ("inactive", False, 0)
    told = setup("", "y", "y")
    assert "Write the service again?" in told
    row = events(nedura("gateway", "status", "--json"))[0]
    assert (row["state"], row["enabled"]) == ("active", True)
    unit = Path(row["path"])
    before = unit.stat().st_ino
    assert events(nedura("gateway", "install", "--json"))[0]["change"] == "unchanged"
    assert unit.stat().st_ino == before
    assert events(nedura("gateway", "install", "--force", "--json"))[0]["change"] == "refreshed"
    assert unit.stat().st_ino != before
    nobody = nedura("gateway", "setup", check=False)
    assert nobody.returncode == 2
    assert "nedura gateway install" in nobody.stderr


@scene
def root_on_the_home_of_a_user() -> None:
    """Every verb as root on another user's home: exit 2, nothing of it changes hands (threats.md 4)."""
    nedura("gateway", "install")
    pid = main_pid()
    sh("touch", "/run/mark")
    for argv in (
        ("install",),
        ("uninstall",),
        ("stop", "--all"),
        ("restart", "--all"),
        ("install", "--system"),
    ):
        refused = nedura_as_root("gateway", *argv, check=False)
        assert refused.returncode == 2, (argv, refused.stdout, refused.stderr)
    found = sh("find", str(HOME.parent), "-newer", "/run/mark", "-uid", "0").stdout.split()
    assert not found, found
    assert main_pid() == pid


@scene
def a_system_service_with_and_without_rights() -> None:
    """Root installs it for its user; the user drains it and waits for the manager's own restart; without one the command is named."""
    done = nedura_as_root("gateway", "install", "--system", "--run-as-user", USER, "--json", SUDO_USER=USER)
    assert [event["change"] for event in events(done) if event["kind"] == "service_changed"] == [
        "installed",
        "started",
    ]
    assert sh("systemctl", "show", UNIT, "-p", "User", "--value").stdout.strip() == USER
    first = main_pid("system")
    assert sh("find", str(HOME), "-uid", "0").stdout.split() == []
    as_root = nedura_as_root("gateway", "restart", "--system", "--json", SUDO_USER=USER)
    assert kinds(as_root)[-1] == "member_restarted"
    second = main_pid("system")
    assert second != first
    drop_in = Path(f"/etc/systemd/system/{UNIT}.d")
    drop_in.mkdir()
    (drop_in / "fast.conf").write_text("[Service]\nRestartSec=1\nExecStartPre=/bin/echo said-by-the-unit\n")
    sh("systemctl", "daemon-reload")
    alone = nedura("gateway", "restart", "--json")
    assert kinds(alone)[-1] == "member_restarted", alone.stdout
    third = main_pid("system")
    assert third != second
    (drop_in / "fast.conf").write_text("[Service]\nRestart=no\nRestartForceExitStatus=\nTimeoutStartSec=1\n")
    sh("systemctl", "daemon-reload")
    failed = nedura("gateway", "restart", "--json", check=False)
    assert failed.returncode == 1
    event = next(event for event in events(failed) if event["kind"] == "member_failed")
    assert event["command"] == f"sudo systemctl restart {UNIT}"
    assert events(nedura("gateway", "status", "--json"))[0]["scope"] == "system"
    shown = next(
        event
        for event in events(nedura_as_root("gateway", "status", "-l", "--json", SUDO_USER=USER))
        if event["kind"] == "gateway_status"
    )
    told = sh("journalctl", "-n", "20", f"--unit={UNIT}", check=False)
    assert any("said-by-the-unit" in line for line in shown["log"]), (shown["log"], told.stdout, told.stderr)
    # it must outlive its user's session: an install turns lingering on where it is off
    linger = Path("/var/lib/systemd/linger") / USER
    sh("loginctl", "disable-linger", USER)
    assert not linger.exists()
    nedura_as_root("gateway", "install", "--system", "--run-as-user", USER, SUDO_USER=USER)
    assert linger.exists()


def main(name: str) -> int:
    machine()
    SCENES[name]()
    sys.stdout.write(f"scene {name}: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
