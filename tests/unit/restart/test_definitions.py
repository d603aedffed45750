from __future__ import annotations

import plistlib
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.errors import RefusedError, UsageError
from nedura.fleet.drain import DrainSettings
from nedura.fleet.service.definition import (
    Wanted,
    drift,
    escape_environment,
    escape_exec,
    plist_bytes,
    read_unit,
    stop_seconds,
    unit_text,
)
from nedura.fleet.service.manager import ServiceState
from nedura.fleet.service.names import label_name, service_suffix, unit_name
from nedura.fleet.service.place import Account, ServicePlace
from nedura.fleet.service.rules import check_definition, check_home, check_place
from nedura.fleet.supervisors.unit_state import UnitState, parse_environment, parse_show, why_down

ME = Account(name="u", uid=1000, gid=1000, group="u", home=Path("/home/u"))
WANTED = Wanted(
    launcher=Path("/home/u/.nedura/bin/nedura"),
    home=Path("/home/u/.nedura"),
    profile="default",
    account=ME,
    path="/usr/bin:/bin",
)


def test_a_unit_says_what_the_facts_ask() -> None:
    unit = read_unit(unit_text(WANTED))
    assert unit["Service.ExecStart"] == ('"/home/u/.nedura/bin/nedura" "gateway" "run"',)
    for key, value in {
        "Service.Type": "notify", "Service.NotifyAccess": "main", "Service.Restart": "always", "Service.RestartSec": "5",
        "Service.RestartForceExitStatus": "75", "Service.SuccessExitStatus": "75", "Service.RestartPreventExitStatus": "78",
        "Service.KillMode": "mixed", "Service.KillSignal": "SIGTERM", "Service.ExecReload": "/bin/kill -USR1 $MAINPID",
        "Service.WorkingDirectory": "/home/u/.nedura", "Unit.StartLimitIntervalSec": "0", "Install.WantedBy": "default.target",
    }.items():  # fmt: skip
        assert unit[key] == (value,), key
    assert "Service.User" not in unit
    assert "--replace" not in unit_text(WANTED)


def test_a_system_unit_runs_as_its_user() -> None:
    unit = read_unit(unit_text(attrs.evolve(WANTED, scope="system", profile="work")))
    assert unit["Service.User"] == ("u",)
    assert unit["Install.WantedBy"] == ("multi-user.target",)
    assert unit["Unit.After"] == ("network-online.target user@1000.service",)
    environment = parse_environment(" ".join(unit["Service.Environment"]))
    assert environment["HOME"] == "/home/u"
    assert environment["USER"] == environment["LOGNAME"] == "u"
    assert unit["Service.ExecStart"][0].endswith('"-p" "work" "gateway" "run"')


@given(
    st.floats(0, 86_400, allow_nan=False),
    st.floats(0, 86_400, allow_nan=False),
    st.floats(0, 60, allow_nan=False),
)
def test_the_stop_limit_is_above_every_budget_of_the_member(drain: float, cron: float, grace: float) -> None:
    """C073: a stop limit below the drain kills the service in mid-drain."""
    settings = DrainSettings(drain_s=drain, cron_s=cron, grace_s=grace)
    limit = stop_seconds(settings)
    assert limit >= 60
    assert limit > max(drain, cron) + grace + settings.watchdog_s


def test_the_stop_limit_of_the_defaults() -> None:
    assert stop_seconds(DrainSettings()) == 105


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\x00b", "a\x1bb", "a\u2028b", ""])
def test_what_no_definition_can_hold_is_refused(bad: str) -> None:
    for wanted in (
        attrs.evolve(WANTED, home=Path("/h/" + bad) if bad else Path("/h"), path=bad),
        attrs.evolve(WANTED, path=bad),
        attrs.evolve(WANTED, profile="a" + bad + "\n"),
    ):
        with pytest.raises(UsageError):
            unit_text(wanted)
    with pytest.raises(UsageError):
        plist_bytes(attrs.evolve(WANTED, path=bad), "ai.nedura.gateway")


@pytest.mark.parametrize("path", ["/a'b/nedura", '/a"b/nedura', "/a\\b/nedura"])
def test_a_launcher_that_systemd_would_refuse_is_refused_by_us(path: str) -> None:
    with pytest.raises(UsageError):
        unit_text(attrs.evolve(WANTED, launcher=Path(path)))


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1))
def test_an_environment_value_survives_its_escapes(value: str) -> None:
    written = escape_environment("NAME", value)
    assert parse_environment(written.replace("%%", "%")) == {"NAME": value}
    assert "\n" not in escape_exec(value)


def test_a_plist_maps_78_and_passes_signals_on() -> None:
    found = plistlib.loads(plist_bytes(WANTED, "ai.nedura.gateway"))
    assert found["Label"] == "ai.nedura.gateway"
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert found["ProgramArguments"][3:] == [
        "ai.nedura.gateway", "/home/u/.nedura/bin/nedura", "gateway", "run", "--external-supervisor",
    ]  # fmt: skip
    assert found["EnvironmentVariables"]["NEDURA_HOME"] == "/home/u/.nedura"
    assert found["ExitTimeOut"] == 60


def test_freshness_is_meaning() -> None:
    old = unit_text(WANTED)
    assert drift(old, unit_text(attrs.evolve(WANTED, path="/bin:/usr/bin"))) == ()
    assert drift(old.replace("RestartSec=5", "# RestartSec=5\nRestartSec=5"), old) == ()
    assert drift(old.replace("RestartPreventExitStatus=78\n", ""), old) == ("RestartPreventExitStatus",)
    assert drift(old, unit_text(attrs.evolve(WANTED, home=Path("/h")))) == ("Environment", "WorkingDirectory")


def test_names_of_homes() -> None:
    native = Path("/home/u/.nedura")
    assert unit_name(native, native) == "nedura-gateway.service"
    assert unit_name(native / "profiles" / "work", native) == "nedura-gateway-work.service"
    assert label_name(native, native) == "ai.nedura.gateway"
    custom = service_suffix(Path("/srv/bot"), native)
    assert len(custom) == 8
    assert int(custom, 16) >= 0
    assert service_suffix(Path("/srv/bot/profiles/work"), native) not in ("work", custom)
    assert service_suffix(Path("/srv/other"), native) != custom


PLACE = ServicePlace(
    platform="linux", account=ME, euid=1000, user_units=Path("/none"), temporary=(Path("/tmp"),)
)


def test_the_refusals_of_a_place() -> None:
    with pytest.raises(UsageError, match="needs root"):
        check_place("system", PLACE)
    with pytest.raises(RefusedError, match="container"):
        check_place("user", attrs.evolve(PLACE, container=True))
    with pytest.raises(UsageError, match="not managed by root"):
        check_place("user", attrs.evolve(PLACE, euid=0))
    root = attrs.evolve(PLACE, euid=0, account=attrs.evolve(ME, uid=0, name="root"))
    with pytest.raises(RefusedError, match="as root"):
        check_place("system", root)
    check_place("system", root, run_as="root")
    check_place("system", attrs.evolve(PLACE, euid=0))


def test_a_temporary_home_is_refused_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    place = attrs.evolve(
        PLACE, temporary=(tmp_path / "real",), account=attrs.evolve(ME, uid=tmp_path.stat().st_uid)
    )
    (tmp_path / "link" / "home").mkdir()
    with pytest.raises(RefusedError, match="temporary"):
        check_home(tmp_path / "link" / "home", place)
    check_home(tmp_path, place)
    with pytest.raises(RefusedError, match="another user"):
        check_home(tmp_path, attrs.evolve(place, account=attrs.evolve(ME, uid=4242)))


def test_a_definition_of_another_home_is_left_alone_by_every_verb(tmp_path: Path) -> None:
    state = ServiceState(name="x.service", content=b"x", path=tmp_path / "x", home=str(tmp_path / "other"))
    for verb in ("install", "uninstall", "start", "stop"):
        with pytest.raises(RefusedError, match="another home"):
            check_definition(state, tmp_path, verb)
    with pytest.raises(RefusedError, match="names no home"):
        check_definition(attrs.evolve(state, home=None), tmp_path, "stop")
    with pytest.raises(RefusedError, match="masked"):
        check_definition(attrs.evolve(state, content=None, masked=True), tmp_path, "start")
    check_definition(attrs.evolve(state, home=str(tmp_path)), tmp_path, "stop")
    check_definition(attrs.evolve(state, content=None), tmp_path, "install")


def test_show_is_read_by_key_and_in_any_order() -> None:
    text = 'MainPID=7\nId=a.service\nActiveState=active\nEnvironment=A=1 "B=x y" EMPTY= "C=q\\"q" D=\\\\x\nTimeoutStopUSec=infinity\n'
    text += (
        "\n\nId=b.service\nMainPID=0\nUnknown=1\nActiveState=failed\nResult=exit-code\nExecMainStatus=203\n"
    )
    first, second = parse_show(text)
    assert first.running
    assert first.environment == {"A": "1", "B": "x y", "EMPTY": "", "C": 'q"q', "D": "\\x"}
    assert (first.stop_limit, first.start_limit) == ("infinity", None)
    assert why_down(second) == (
        "boot",
        "its program cannot be run (missing, or not executable) (exit code 203)",
    )


@pytest.mark.parametrize(
    ("state", "check", "words"),
    [
        ({"result": "exit-code", "exit_status": 200}, "boot", "working directory"),
        ({"result": "exit-code", "exit_status": 78}, "config", "configuration"),
        ({"result": "start-limit-hit"}, "start_limit", "too often"),
        ({"result": "timeout"}, "ready", "time limit"),
        ({"result": "signal", "exit_status": 9, "killed": True}, "boot", "signal 9"),
        ({"load": "masked"}, "masked", "masked"),
        ({"load": "not-found"}, "missing", "gone"),
        ({"active": "activating", "sub": "start"}, "ready", "still activating"),
        ({"active": "inactive", "result": "exec-condition"}, "start", "condition"),
        ({"result": "oom-kill", "exit_status": 9}, "boot", "memory"),
        ({"active": "inactive"}, "start", "inactive"),
    ],
)
def test_c074_a_status_is_decoded(state: dict[str, object], check: str, words: str) -> None:
    found = why_down(UnitState(name="x.service", **{"load": "loaded", **state}))  # type: ignore[arg-type]
    assert found[0] == check
    assert words in found[1]


@given(st.text())
def test_any_environment_line_can_be_read(text: str) -> None:
    assert all(name for name in parse_environment(text)) or "=" in text
    list(parse_show(text))


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2003", "\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_the_managers_own_blanks_end_a_word_or_a_line(blank: str) -> None:
    """An ideographic space in a home's path cut the home short, and the unit was taken for another home's."""
    home = f"/home/u/a{blank}b{blank}"
    (state,) = parse_show(f"Id=nedura-gateway.service\nEnvironment=A=1 NEDURA_HOME={home}\n\n")
    assert state.environment == {"A": "1", "NEDURA_HOME": home}
