"""Field reports of area `update.plan` by their ids."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet import ServiceInfo
from nedura.homes import root_home
from nedura.installs import find_installs
from nedura.product import NEDURA
from nedura.testing.installs import TOY, Site, git, make_origin, make_site
from nedura.update.events import PlanReady
from nedura.update.generation.install import install_checkout
from nedura.update.generation.record import read_record
from nedura.update.planning.admission import find_subject, refusal_of
from nedura.update.planning.install_kind import Observed, judge_kind
from nedura.update.planning.observe import Machine
from nedura.update.planning.plan import plan_update
from nedura.update.planning.plan_collect import closed
from nedura.update.planning.stopped import account_home, definitions_in, stopped_services
from nedura.update.real import plan as plan_stage
from nedura.update.source.check import check_for_update
from tests.kits.sealed import Stages


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


async def test_c001_a_container_stamp_in_the_home_does_not_make_a_git_install_a_container(site: Site) -> None:
    (site.home / ".install_method").write_text("docker\n")
    plan = await plan_update(home=site.home, product=site.product)
    assert (plan.install_method, plan.updatable_in_place) == ("git", True)
    (conflict,) = plan.conflicts
    assert "docker" in conflict
    assert ".install_method of the home" in conflict
    assert conflict in plan.copy_terminal


def test_c003_an_image_without_git_names_its_own_pull_command(site: Site, tmp_path: Path) -> None:
    tree, machine = tmp_path / "image/app", tmp_path / "image"
    shutil.copytree(site.checkout, tree, ignore=shutil.ignore_patterns(".git"))
    (machine / "etc/nedura").mkdir(parents=True)
    (machine / "etc/nedura/image-label").write_text("registry.example/team/nedura\n")
    home = tmp_path / "data"
    home.mkdir()
    subject = find_subject(
        home,
        NEDURA,
        {},
        anchor=tree / "toy/main.py",
        machine=Machine(root=machine, executable="/usr/bin/python3"),
    )
    refusal = refusal_of(subject.kind)
    assert refusal is not None
    assert (refusal.exit_code, refusal.command) == (2, "docker pull registry.example/team/nedura:latest")
    assert os.listdir(home) == []


async def test_c005_what_is_on_disk_is_listed(site: Site) -> None:
    for name in ("Alpha", "media"):
        (site.home / "profiles" / name).mkdir(parents=True)
    plan = await plan_update(home=site.home, product=site.product)
    assert "media" in plan.profiles
    assert "Alpha" in plan.strays
    assert "Alpha" in plan.copy_terminal


async def test_c193_a_file_over_the_cap_of_a_snapshot_gives_it_no_time(site: Site) -> None:
    with open(site.home / "state.db", "wb") as file:
        file.truncate(24 << 30)
    plan = await plan_update(home=site.home, product=site.product)
    assert plan.deadlines["snapshot"] < 200


UNIT = "[Service]\nEnvironment={}\nExecStart=/x/bin/nedura gateway run\n"


async def test_c005_services_that_are_stopped_are_neither_forgotten_nor_started(
    site: Site, tmp_path: Path
) -> None:
    """No manager lists a unit that it has not loaded: its file says whose home it serves, whatever it is called."""
    media, other = site.home / "profiles/media", tmp_path / "other"
    for folder in (media, other):
        folder.mkdir(parents=True)
    units = tmp_path / "config/systemd/user"
    units.mkdir(parents=True)
    for name, lines in {
        "x-media.service": f'"NEDURA_HOME={media}"',
        "nedura-gateway.service": f"NEDURA_HOME={site.home} A=b",
        "nedura-gateway-other.service": f"NEDURA_HOME={other}",
        "x-unclosed.service": f'"NEDURA_HOME={media}',
        "x-nothing.service": "A=b",
    }.items():
        (units / name).write_text(UNIT.format(lines))
    (units / "x-nowhere.service").symlink_to(tmp_path / "gone")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    plan = await plan_update(home=site.home, product=site.product, environ=environ)
    assert dict(plan.stopped) == {"nedura-gateway.service": "default", "x-media.service": "media"}
    assert (
        "x-media.service [media] — installed, not running; an update does not start it" in plan.copy_terminal
    )
    assert plan.runtimes == ()
    assert "fleet" not in plan.unreadable


def test_c005_what_runs_is_not_called_stopped(tmp_path: Path) -> None:
    """Whether it runs is the manager's word; the file alone does not say."""
    root, units = tmp_path / "home", tmp_path / "units"
    for folder in (root, units):
        folder.mkdir()
    for name in ("runs.service", "rests.service", "file-only.service"):
        (units / name).write_text(UNIT.format(f"NEDURA_HOME={root}"))
    known = [
        ServiceInfo(name="runs.service", state="active", main_pid=7, environment={"NEDURA_HOME": str(root)}),
        ServiceInfo(name="rests.service", state="inactive", environment={"NEDURA_HOME": str(root)}),
        ServiceInfo(name="loaded-only.service", state="failed", environment={"NEDURA_HOME": f"{root}/"}),
        ServiceInfo(name="elsewhere.service", state="failed", environment={"NEDURA_HOME": "/elsewhere"}),
    ]
    found = stopped_services({"default": root}, known, [units], NEDURA)
    assert [one.name for one in found] == ["file-only.service", "loaded-only.service", "rests.service"]


def test_c005_a_home_is_found_however_the_unit_spells_it(tmp_path: Path) -> None:
    """systemd reads drop-ins, goes on behind a backslash, knows the account's home, and forgets on an empty line."""
    root = tmp_path / "home"
    told, dropped = f"[Service]\nEnvironment=NEDURA_HOME={root}\n", tmp_path / "drop-in.service.d"
    for folder in (root, dropped, tmp_path / "empty.service.d"):
        folder.mkdir()
    (tmp_path / "goes-on.service").write_text(f"[Service]\nEnvironment=A=b \\\n  NEDURA_HOME={root}\n")
    (tmp_path / "drop-in.service").write_text("[Service]\nExecStart=/x\n")
    (dropped / "50-home.conf").write_text(told)
    (dropped / "60-not-read.txt").write_text("[Service]\nEnvironment=NEDURA_HOME=/elsewhere\n")
    (tmp_path / "empty.service").write_text(told)
    (tmp_path / "forgets.service").write_text(f"{told}Environment=\n")
    (tmp_path / "percent.service").write_text("[Service]\nEnvironment=NEDURA_HOME=%h/100%%\n")
    found = {name: home for name, home, _ in definitions_in([tmp_path], NEDURA)}
    assert found == {
        "drop-in.service": str(root),
        "empty.service": str(root),
        "goes-on.service": str(root),
        "percent.service": f"{account_home()}/100%",
    }


def test_c005_a_home_is_found_in_an_environment_file_and_behind_env(tmp_path: Path) -> None:
    """Where systemd and launchd get it from without an `Environment=` line; what is read later wins, as for systemd."""
    root, files = tmp_path / "ho me", tmp_path / "files"
    files.mkdir()
    (files / "a.conf").write_text(f'# NEDURA_HOME=/comment\nOTHER=1\n  NEDURA_HOME="{root}"  \n')
    (files / "b.conf").write_text("NEDURA_HOME=/elsewhere\n")
    os.mkfifo(files / "pipe.conf")
    units = {
        "file": f"EnvironmentFile={files}/a.conf",
        "file-wins": f"EnvironmentFile=-{files}/a.conf\nEnvironment=NEDURA_HOME=/elsewhere",
        "files": f"EnvironmentFile={files}/b.conf\nEnvironmentFile={files}/a.conf",
        "pattern": f"EnvironmentFile={files}/[a].conf",
        "env": f"ExecStart=-/usr/bin/env -u A B=c 'NEDURA_HOME={root}' /x/bin/nedura gateway run",
        "env-wins": f'EnvironmentFile={files}/b.conf\nExecStart=env "NEDURA_HOME={root}" nedura gateway run',
        "shell": f"ExecStart=/bin/sh -c \"NEDURA_HOME='{root}' exec nedura gateway run\"",
        "gone": f"EnvironmentFile=-{files}/gone.conf",
        "pipe": f"EnvironmentFile={files}/pipe.conf",
        "folder": f"EnvironmentFile={files}",
        "forgets": f"EnvironmentFile={files}/a.conf\nEnvironmentFile=",
        "argument": "ExecStart=/x/bin/nedura gateway run NEDURA_HOME=/argument",
    }
    for name, text in units.items():
        (tmp_path / f"{name}.service").write_text(f"[Service]\n{text}\n")
    arguments = "".join(
        f"<string>{word}</string>" for word in ("/usr/bin/env", f"NEDURA_HOME={root}", "nedura")
    )
    (tmp_path / "agent.plist").write_text(
        f'<plist version="1.0"><dict><key>ProgramArguments</key><array>{arguments}</array></dict></plist>'
    )
    before = len(os.listdir("/dev/fd"))
    found = {name: home for name, home, _ in definitions_in([tmp_path], NEDURA)}
    assert len(os.listdir("/dev/fd")) == before
    told = ("file", "file-wins", "files", "pattern", "env", "env-wins", "shell")
    assert found == {**{f"{name}.service": str(root) for name in told}, "agent": str(root)}


def test_c005_what_cannot_be_read_beside_a_unit_does_not_hide_it(tmp_path: Path) -> None:
    told = "[Service]\nEnvironment=NEDURA_HOME=/home/me/.nedura\n"
    for name in ("file", "link", "unreadable", "nul"):
        (tmp_path / f"{name}.service").write_text(told)
    (tmp_path / "file.service.d").write_text("x")
    (tmp_path / "link.service.d").symlink_to(tmp_path / "gone")
    (tmp_path / "unreadable.service.d").mkdir()
    (tmp_path / "unreadable.service.d/x.conf").symlink_to("/proc/self/mem")  # a regular file that fails
    (tmp_path / "nul.service").write_text(f"{told}EnvironmentFile=/etc/a\0/*\n")
    found = [name for name, _, _ in definitions_in([tmp_path], NEDURA)]
    assert found == ["file.service", "link.service", "nul.service", "unreadable.service"]


@given(text=st.text(max_size=200), name=st.sampled_from(["a.service", "a.plist"]))
def test_c005_no_definition_breaks_the_plan(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = f"Environment={text}\nNEDURA_HOME\nEnvironmentFile={text}\nExecStart=env {text}"
        (Path(folder) / name).write_text(lines, "utf-8")
        list(definitions_in([Path(folder)], NEDURA))


PACKAGED = {
    "debian": ("usr/lib/python3/dist-packages/nedura/x.py", "apt-get install --only-upgrade python3-nedura"),
    "pipx": (
        "home/u/.local/pipx/venvs/nedura/lib/python3.11/site-packages/nedura/x.py",
        "pipx upgrade nedura",
    ),
    "uv tool": (
        "home/u/.local/share/uv/tools/nedura/lib/python3.11/site-packages/nedura/x.py",
        "uv tool upgrade nedura",
    ),
    "homebrew": (
        "opt/homebrew/Cellar/nedura/1.0/libexec/lib/python3.11/site-packages/nedura/x.py",
        "brew upgrade nedura",
    ),
    "pip": ("srv/venv/lib/python3.11/site-packages/nedura/x.py", "{python} -m pip install --upgrade nedura"),
}


@pytest.mark.parametrize(("place", "command"), PACKAGED.values(), ids=PACKAGED)
async def test_c007_one_answer_on_every_path(tmp_path: Path, place: str, command: str) -> None:
    anchor = tmp_path / "root" / place
    anchor.parent.mkdir(parents=True)
    anchor.write_text("")
    lists = tmp_path / "root/var/lib/dpkg/info"
    lists.mkdir(parents=True)
    (lists / "python3-nedura.list").write_text(
        "/.\n/usr/lib/python3/dist-packages/nedura\n/usr/lib/python3/dist-packages/nedura/x.py\n"
    )
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    machine = Machine(root=tmp_path / "root", executable="/usr/bin/python3")
    refusal = refusal_of(find_subject(home, NEDURA, {}, anchor=anchor, machine=machine).kind)
    assert refusal is not None
    assert (refusal.exit_code, refusal.command) == (2, command.format(python=machine.executable))
    if "dpkg" in str(lists) and place.startswith("usr/"):
        return  # plan and check look at the real machine's package lists
    command = command.format(python=sys.executable)
    plan = await plan_update(home=home, product=NEDURA, environ={"HOME": str(tmp_path)}, anchor=anchor)
    assert (plan.updatable_in_place, plan.update_mechanism) == (False, command)
    check = check_for_update(home, NEDURA, dict(os.environ), anchor=anchor)
    assert (check.state, check.command) == ("managed", command)


def test_c007_the_nix_store() -> None:
    found = judge_kind(Observed(code="/nix/store/abc-nedura-1.0/lib", git=False), NEDURA)
    assert (found.kind, found.exit_code, found.updatable) == ("nix", 2, False)


async def test_c008_a_tag_pin_stays_on_tags_and_a_branch_is_fetched_by_name(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "origin")
    git(origin.folder, "tag", "v1.2.0")
    origin.commit({"toy/value.py": "VALUE = 2\n"})
    git(origin.folder, "tag", "v1.3.0")
    origin.commit({"toy/value.py": "VALUE = 3\n"})
    pinned = origin.clone(tmp_path / "source", "--branch", "v1.2.0", "--depth", "1", "--single-branch")
    home = tmp_path / "home"
    install_checkout(pinned, home, product=TOY, environment="none")
    (paths,) = find_installs(home)
    assert read_record(paths).branch == ""
    site = Site(origin=origin, checkout=pinned, home=home, paths=paths, product=TOY)
    plan = await plan_update(home=home, product=TOY)
    assert plan.pinned == "v1.2.0"
    assert "Pinned to v1.2.0" in plan.copy_terminal
    check = check_for_update(home, TOY, dict(os.environ))
    assert (check.state, check.name) == ("behind", "v1.3.0")
    stages = Stages(site)
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2", "the newest tag, not the tip of a branch"
    await stages.update(branch="main")
    assert site.run().stdout.splitlines()[0] == "3"
    assert root_home(home) == home


async def test_c008_a_plan_tells_of_the_branch_or_channel_that_was_asked_for(site: Site) -> None:
    """The command's own options decide what an update follows, so the plan of that very update must say so."""
    branch = await plan_update(home=site.home, product=site.product, branch="next")
    channel = await plan_update(home=site.home, product=site.product, channel="canary")
    assert branch.follows == "next (from option)"
    assert channel.follows == "channel canary (from option)"
    stages = Stages(site)
    run = stages.run(branch="next")
    told = [event async for event in plan_stage(run)]
    assert [event.plan["follows"] for event in told if isinstance(event, PlanReady)] == ["next (from option)"]


async def test_c194_a_profile_that_is_closed_to_us_is_named(site: Site) -> None:
    home = site.home / "profiles/shut"
    home.mkdir(parents=True)
    assert closed(home) == ""
    assert "permission denied" in closed(home, access=lambda path, mode: False)
    assert closed(site.home / "profiles/gone", access=lambda path, mode: False) == "", (
        "not there is not closed"
    )
    assert closed(home, access=lambda path, mode: not mode & os.W_OK) == "", "what can be read is not closed"
    if os.geteuid() != 0:  # root may look into everything
        home.chmod(0)
        plan = await plan_update(home=site.home, product=site.product)
        home.chmod(0o700)
        assert "permission denied" in plan.unreadable["profile shut"]
        assert "profile shut could not be read" in plan.copy_terminal
