"""Field reports about restarts and services, by their ids."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

import psutil
import pytest

from nedura.fleet.budget import restart_budget
from nedura.fleet.inventory import collect, look
from nedura.fleet.restart import RestartParts
from nedura.fleet.restart_events import MemberRestarted
from nedura.fleet.rolling import restart_rest
from nedura.fleet.successor import successor_environment
from nedura.fleet.supervisors.manual import ManualSupervisor
from tests.integration.restart.daemon import identity
from tests.integration.restart.manual import ROOT, TOY, add_profile, make_root, running, serving
from tests.system.restart.runner import run_scene
from tests.unit.restart.test_budget import TABLE

SCENES = "tests.system.restart.scenes"
SERVICES = "tests.system.restart.service_scenes"


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["c070_five_units_three_homes", "c070_ten_units_one_hangs"])
def test_c070_every_unit_of_the_install_and_one_failing_stops_none(name: str) -> None:
    run_scene(SCENES, name)


def test_c072_limits_in_every_spelling() -> None:
    for stop, start, restart, start_only in TABLE:
        assert restart_budget(stop, start) == pytest.approx(restart, abs=1e-6)
        assert restart_budget(stop, start, drained=True) == pytest.approx(start_only, abs=1e-6)


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c072_the_clients_end_is_not_the_jobs_end() -> None:
    run_scene(SCENES, "c072_a_client_timeout_is_watched")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c073_a_stop_limit_shorter_than_the_drain() -> None:
    run_scene(SCENES, "c073_stop_limit_shorter_than_drain")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c074_a_failed_unit_comes_back_and_its_status_is_decoded() -> None:
    run_scene(SCENES, "c074_a_failed_unit_is_revived")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c075_the_managers_own_delay() -> None:
    run_scene(SCENES, "c075_a_delay_of_the_manager_is_not_waited_for")


async def test_c076_a_successor_survives_the_session_that_asked_for_it(tmp_path: Path) -> None:
    """Asked from inside, by a process with the marks of the old gateway, whose session ends at once."""
    root = make_root(tmp_path)
    async with running(root, root) as (member,):
        code = (
            "import asyncio, sys\nfrom pathlib import Path\nfrom nedura.fleet.inventory import look\n"
            "from nedura.fleet.supervisors.manual import ManualSupervisor\nimport attrs, os, signal\n"
            "async def main():\n"
            "    found = attrs.evolve(await look(Path(sys.argv[1])), supervisor='manual')\n"
            "    await ManualSupervisor().arm(found)\n"
            "    os.kill(found.pid, signal.SIGUSR1)\n"
            "    os.killpg(0, signal.SIGHUP)\n"
            "asyncio.run(main())\n"
        )
        asker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(root), start_new_session=True,
            env={**os.environ, "NEDURA_SUPERVISED_CHILD": "1", "INVOCATION_ID": "x", "NOTIFY_SOCKET": "/nowhere",
                 "BOT_TOKEN": "123", "NEDURA_BOT_TOKEN": "456", "NEDURA_SOMETHING": "kept"},
        )  # fmt: skip
        await asker.wait()
        after = await serving(root, not_pid=member.pid)
        environment = psutil.Process(after.pid).environ()
        gone = {"NEDURA_SUPERVISED_CHILD", "INVOCATION_ID", "NOTIFY_SOCKET", "BOT_TOKEN", "NEDURA_BOT_TOKEN"}
        assert not gone & set(environment)
        assert environment["NEDURA_SOMETHING"] == "kept"
        assert os.getsid(after.pid) == after.pid
        assert os.readlink(f"/proc/{after.pid}/fd/0") == os.devnull


UPDATER = """
import asyncio, json, os, sys
from pathlib import Path
from nedura.fleet.inventory import collect, look
from nedura.fleet.restart import RestartParts
from nedura.fleet.rolling import restart_rest
from nedura.fleet.supervisors.manual import ManualSupervisor
from tests.integration.restart.daemon import identity

async def main(root, result):
    fleet = await collect(root, install_id="d" * 12)
    parts = RestartParts(supervisors={"manual": ManualSupervisor()}, look=look)
    events = [event async for event in restart_rest(fleet.runtimes, identity("2"), parts=parts)]
    result.write_text(json.dumps({
        "ancestors": [one.profile for one in fleet.runtimes if one.ancestor],
        "others": [one.profile for one in fleet.runtimes if not one.ancestor],
        "events": [[event.kind, event.profile] for event in events],
    }))

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


async def test_c077_c078_an_update_inside_a_turn(tmp_path: Path) -> None:
    """gateway -> shell -> updater: the gateway above stays visible, is told, and is not waited for; all ends within seconds."""
    root = make_root(tmp_path)
    other = add_profile(root, "other")
    script, result = tmp_path / "updater.py", tmp_path / "result.json"
    script.write_text(UPDATER)
    words = shlex.join([sys.executable, str(script), str(root), str(result)])
    version, tree = shlex.quote(str(root / "version")), shlex.quote(str(ROOT))
    (root / "command").write_text(f"sleep 1.5; echo 2 > {version}; PYTHONPATH={tree} {words}; true")
    (other / "command").write_text("true")
    async with running(root, root, other) as (member, _):
        (root / "command").write_text("true")
        after = await serving(root, not_pid=member.pid, timeout=30)
        told = json.loads(result.read_text())
        assert told["ancestors"] == ["default"]
        assert told["others"] == ["other"]
        kinds = [tuple(event) for event in told["events"]]
        assert ("member_restarted", "other") in kinds
        assert kinds[-1] == ("restart_pending", "default")
        assert after.code == identity("2")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name", ["c079_an_updater_in_the_gateways_own_cgroup", "c079_an_updater_that_cannot_leave_the_cgroup"]
)
def test_c079_the_restart_does_not_end_the_updater(name: str) -> None:
    run_scene(SCENES, name)


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c080_a_scratch_home_never_touches_the_production_service() -> None:
    run_scene(SERVICES, "c080_a_scratch_home_never_touches_the_production_service")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c082_an_existing_definition_keeps_its_home() -> None:
    run_scene(SERVICES, "c082_an_existing_definition_keeps_its_home")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c083_drop_ins_stay_and_only_meaning_counts() -> None:
    run_scene(SERVICES, "c083_drop_ins_stay_and_only_meaning_counts")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c085_a_wrapper_as_main_process() -> None:
    run_scene(SCENES, "c085_a_wrapper_as_main_process")


async def test_c092_a_link_is_resolved_anew_at_each_start(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    for release in ("1", "2"):
        (tmp_path / f"rel{release}").mkdir()
        (tmp_path / f"rel{release}" / "version").write_text(release)
    current = tmp_path / "current"
    current.symlink_to("rel1")
    launcher = root / "bin" / "nedura"
    launcher.write_text(
        f'#!/bin/sh\ngen=$(readlink -f {shlex.quote(str(current))})\ncp "$gen/version" "$NEDURA_HOME/version"\n'
        f'PYTHONPATH={shlex.quote(str(ROOT))} exec {TOY} "$@"\n'
    )
    async with running(root, root) as (member,):
        assert member.code == identity("1")
        (tmp_path / "new").symlink_to("rel2")
        (tmp_path / "new").rename(current)
        parts = RestartParts(supervisors={"manual": ManualSupervisor()}, look=look)
        events = [event async for event in restart_rest([member], identity("2"), parts=parts)]
        assert isinstance(events[-1], MemberRestarted)
        fleet = await collect(root, install_id="d" * 12)
        assert [one.pid for one in fleet.runtimes] == [events[-1].pid], "the old one is gone, there is one"


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["c093_a_refused_configuration", "c093_a_start_limit_is_named_and_lifted"])
def test_c093_what_is_refused_is_not_started_for_ever(name: str) -> None:
    run_scene(SCENES, name)


def test_c156_a_successor_gets_nothing_of_another_profile() -> None:
    environ = {
        "PATH": "/bin", "HOME": "/home/u", "LC_ALL": "C", "NEDURA_HOME": "/home/u/.nedura", "BOT_TOKEN": "A",
        "NEDURA_TELEGRAM_TOKEN": "B", "NEDURA_PORTAL_BASE_URL": "https://portal.example", "OPENAI_API_KEY": "C",
        "NEDURA_UPDATE_ID": "x", "LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil", "XDG_SESSION_ID": "3", "HTTPS_PROXY": "http://p",
    }  # fmt: skip
    found = successor_environment(environ, Path("/home/u/.nedura/profiles/b"))
    assert found == {
        "PATH": "/bin", "HOME": "/home/u", "LC_ALL": "C", "NEDURA_HOME": "/home/u/.nedura/profiles/b",
        "NEDURA_PORTAL_BASE_URL": "https://portal.example", "HTTPS_PROXY": "http://p",
    }  # fmt: skip


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c158_the_service_of_a_profile_that_goes() -> None:
    run_scene(SERVICES, "c158_the_service_of_a_profile_that_goes")


@pytest.mark.system
@pytest.mark.root
@pytest.mark.timeout(120)
def test_c163_two_services_for_one_home() -> None:
    run_scene(SCENES, "c163_two_services_for_one_home")
