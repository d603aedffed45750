"""What the running shell takes up by itself: an edited skin, the terminal's background, the account's models, a newer version."""

from __future__ import annotations

import asyncio
import json
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from nedura.config import edit_config, set_value
from nedura.errors import ConfigError, RefusedError
from nedura.installs import InstallPaths, checkout_of, install_id_for, running_code
from nedura.profiles import create_profile
from nedura.signin import ModelChoice
from nedura.skin_files import new_skin, save_choice
from nedura.testing.portal import PortalControl
from nedura.update import ReceiptStore
from nedura.update.ledger.obligations import RestartObligation, TailObligation
from nedura_cli.look import find_look
from nedura_cli.newer import newer_version
from nedura_cli.output import Output
from nedura_cli.owed import owed_now
from nedura_cli.shell.models import KEPT, RETRY, ModelNames
from nedura_cli.shell.plain import PlainShell
from nedura_cli.shell.session import Session
from nedura_cli.shell.skin_watch import SkinWatch
from nedura_cli.shell.slash import parse
from tests.kits.terminal import Screen, open_screen, ready

ASKED = b"\x1b]11;?\x1b\\"
ATTRIBUTES = "\x1b[?62;22c"


def write_skin(home: Path, name: str, text: str) -> Path:
    path = home / "skins" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


# --- skins


def test_an_edited_skin_is_taken_up_and_a_broken_one_is_not(home: Path) -> None:
    path = write_skin(home, "mine", 'name: mine\nbranding: {prompt_symbol: ">>>"}\n')
    save_choice(home, "mine")
    with open_screen(home=home) as screen:
        ready(screen)
        screen.until(">>>")
        screen.send("typing goes on")
        path.write_text('name: mine\nbranding: {prompt_symbol: "=>"}\n')
        screen.until("=> typing goes on", 5)
        path.write_text("name: [mine\n")
        screen.until("The skin stays as it is: mine.yaml", 5)
        screen.until("=> typing goes on", 5)
        path.write_text('name: mine\nbranding: {prompt_symbol: "$$"}\ntool_prefix: 7\n')
        screen.until("$$ typing goes on", 5)
        screen.until("tool_prefix must be text")


def test_a_choice_made_elsewhere_counts_unless_the_session_has_its_own(home: Path) -> None:
    with open_screen(home=home) as screen:
        ready(screen)
        save_choice(home, "ares")
        screen.until("⚔", 5)
        screen.send("/skin slate\r")
        screen.until("The skin is slate for this session.")
        save_choice(home, "mono")
        screen.pump(2.5)
        screen.send("/skin\r")
        screen.until("* slate")


def test_another_profile_brings_its_own_skin(home: Path) -> None:
    save_choice(create_profile(home, "coder").home, "ares")
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("/profile coder\r")
        screen.until("This shell works on coder now.")
        screen.until("⚔")
        screen.send("/profile default\r")
        screen.until("This shell works on default now.")
        screen.until(lambda screen: "❯" in screen.lines)


def test_the_watch_tells_each_state_of_a_file_once(home: Path) -> None:
    path = new_skin(home, "mine", "default")
    watch = SkinWatch(home, "mine")
    assert watch.look() is None
    path.write_text("name: mine\ntool_prefix: '+'\n")
    skin = watch.look()
    assert skin is not None
    assert (skin.name, skin.tool_prefix) == ("mine", "+")
    assert watch.look() is None
    path.unlink()
    with pytest.raises(ConfigError, match="no skin 'mine'"):
        watch.look()
    assert watch.look() is None
    path.write_text("name: mine\n")
    assert watch.look() is not None


def test_a_skin_that_was_missing_is_taken_up_when_it_comes(home: Path) -> None:
    edit_config(home, lambda content: set_value(content, "display.skin", "later"))
    watch = SkinWatch(home, "later")
    write_skin(home, "later", "name: later\n")
    skin = watch.look()
    assert skin is not None
    assert skin.name == "later"


def test_a_name_that_leads_out_of_the_folder_reads_nothing(home: Path) -> None:
    edit_config(home, lambda content: set_value(content, "display.skin", "mono"))
    watch = SkinWatch(home, "mono")
    edit_config(home, lambda content: set_value(content, "display.skin", "../../secret"))
    with pytest.raises(ConfigError, match="is no skin name"):
        watch.look()
    assert watch.look() is None


# --- background


def prompt_color(screen: Screen) -> str:
    """Colour of the prompt symbol, which stands in the line above the status bar or higher."""
    row = max((number for number, line in enumerate(screen.lines) if line.startswith("❯")), default=-1)
    if row < 0:  # between two drawings there is no prompt
        return ""
    return str(screen.cell(row, 0).fg)


@pytest.mark.parametrize(("color", "wanted"), [("ffff/ffff/ffff", "5c4718"), ("1e1e/1e1e/2e2e", "fff8dc")])
def test_the_terminals_own_answer_decides_light_or_dark(home: Path, color: str, wanted: str) -> None:
    replies = {ASKED: f"\x1b]11;rgb:{color}\x1b\\{ATTRIBUTES}"}
    with open_screen(home=home, environ={"COLORTERM": "truecolor"}, replies=replies) as screen:
        ready(screen)
        screen.until(lambda screen: prompt_color(screen) == wanted)
        assert "rgb:" not in screen.text


def test_a_late_answer_is_heeded_and_never_typed_and_no_key_is_lost(home: Path) -> None:
    with open_screen(home=home, environ={"COLORTERM": "truecolor"}) as screen:
        screen.until(lambda screen: ASKED in screen.raw)
        screen.send("early ")
        ready(screen)
        screen.until("❯ early")
        assert prompt_color(screen) == "fff8dc"
        screen.send("one \x1b]11;rgb:ffff/ff")
        screen.send(f"ff/ffff\x07{ATTRIBUTES}two")
        screen.until("❯ early one two", 5)
        screen.until(lambda screen: prompt_color(screen) == "5c4718", 5)


def test_a_wait_for_no_answer_is_short(home: Path) -> None:
    with open_screen(home=home) as screen:
        screen.until(lambda screen: ASKED in screen.raw)
        asked = screen.moments[-1]
        screen.until("/help")
        assert screen.moments[-1] - asked < 1.5


@pytest.mark.parametrize(
    "environ", [{"TERM": "linux"}, {"NO_COLOR": "1"}, {"COLORFGBG": "0;15"}, {"TERM": "dumb"}]
)
def test_who_cannot_or_need_not_answer_is_not_asked(home: Path, environ: dict[str, str]) -> None:
    with open_screen(home=home, environ=environ) as screen:
        screen.until("/help")
        screen.send("/quit\r")
        assert screen.ended() == 0
        assert b"\x1b]11" not in screen.raw


# --- models


def test_models_of_the_account_are_completed(home: Path, portal: PortalControl) -> None:
    environ = {"NEDURA_PORTAL_BASE_URL": portal.url, "NOUS_INFERENCE_BASE_URL": f"{portal.url}/v1"}
    with open_screen(home=home, rows=40, environ=environ) as screen:
        ready(screen)
        screen.send("/login\r")
        screen.until("c copies the link")
        portal.decide(portal.wait_for_code())
        screen.until("Signed in as alice@example.test.")
        screen.send("/model ")
        screen.until(lambda screen: screen.text.count("nous/") > 2)
        screen.send("nous/hermes-4-4")
        screen.until("/model nous/hermes-4-4")
        screen.send("\t\r\r")
        screen.until("The model is nous/hermes-4-405b for this session.")


async def test_a_list_is_asked_for_once_and_a_failure_is_left_alone_for_a_while(home: Path) -> None:
    clock, asked = [0.0], []
    answers: list[ModelChoice | Exception] = [
        RefusedError("Nobody is signed in."),
        ModelChoice(models=("a", "b")),
        ModelChoice(models=("a", "b")),
    ]

    async def ask(home: Path) -> ModelChoice:
        asked.append(home)
        await asyncio.sleep(0)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    names = ModelNames(ask, lambda: clock[0])
    assert names.due(home)
    first = asyncio.ensure_future(names.learn(home))
    await asyncio.sleep(0)
    assert not names.due(home)
    assert await first is False
    assert not names.due(home)
    clock[0] += RETRY
    assert await names.learn(home) is True
    assert names.known(home) == ("a", "b")
    clock[0] += KEPT - 1
    assert not names.due(home)
    clock[0] += 1
    assert await names.learn(home) is False
    assert len(asked) == 3
    names.forget()
    assert names.due(home)
    assert names.known(home) == ()


# --- an update beside the prompt

LAUNCHER = """\
#!/bin/sh
sleep 3
echo '{"kind": "notice", "text": "moved", "warning": false, "copy": "", "copy_terminal": "  moved"}'
exit 1
"""


def test_an_update_is_told_at_once_and_never_silent(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "nedura").write_text(LAUNCHER)
    (home / "bin" / "nedura").chmod(0o755)
    with open_screen(home=home) as screen:
        ready(screen)
        asked, first = time.monotonic(), len(screen.moments)
        screen.send("/update\r")
        screen.until("Starting the update", 1)
        screen.until("updating, 2 s", 5)
        screen.send("/update\r")
        screen.until("An update is running already")
        screen.until("  moved")
        screen.until("The update ended with exit code 1.")
        spoke = [asked, *screen.moments[first:]]
        assert max(later - earlier for earlier, later in pairwise(spoke)) < 2
        screen.until(lambda screen: "updating" not in "\n".join(screen.lines[-8:]))


def test_the_status_bar_says_what_is_owed(home: Path, tmp_path: Path) -> None:
    checkout = checkout_of(Path(__file__))
    assert checkout is not None
    environ = {"NEDURA_HOME": str(home), "NEDURA_GATEWAY_LOCK_DIR": str(tmp_path / "locks")}
    assert owed_now(home, environ) == ""
    tail = TailObligation(InstallPaths(home, install_id_for(checkout)).folder)
    tail.arm()
    assert owed_now(home, environ) == "update unfinished"
    debt = RestartObligation(tmp_path / "locks", checkout, home)
    debt.host_path.parent.mkdir()
    debt.host_path.write_text("unreadable means owed")
    assert owed_now(home, environ) == "restart owed"
    debt.host_path.unlink()
    tail.clear()
    receipt = {
        "update_id": "a",
        "pid": 7,
        "started_at": "2026-11-30T12:00:00+00:00",
        "outcome": "success",
        "followups": [],
    }
    ReceiptStore(home).write(receipt)
    assert owed_now(home, environ) == ""
    ReceiptStore(home).write({**receipt, "followups": [{"step": "gateway_restart", "reason": "alpha"}]})
    assert owed_now(home, environ) == "", "what that run left is done: nothing is armed any more"


# --- a newer version


def remember(home: Path, **fields: object) -> None:
    """An install of this checkout, and what a check of today found."""
    checkout = checkout_of(Path(__file__))
    assert checkout is not None
    install = home / "installs" / install_id_for(checkout)
    install.mkdir(parents=True)
    (install / "install.json").write_text("{}")
    record = {
        "at": time.time(),
        "state": "behind",
        "commits": 3,
        "name": "main",
        "current": running_code().code_sha,
    }
    (home / "update_check.json").write_text(json.dumps({**record, **fields}))


@pytest.mark.parametrize("plain", [False, True])
def test_a_newer_version_is_said_once_at_the_start(home: Path, plain: bool) -> None:
    remember(home)
    with open_screen(*(["--plain"] if plain else []), home=home, columns=120) as screen:
        screen.until("A newer version is available (3 commits on main)")
        screen.send("/quit\r")
        assert screen.ended() == 0
        assert screen.text.count("newer version") == 1


@pytest.mark.parametrize(
    ("fields", "config", "environ"),
    [
        ({"current": "f" * 40}, "", {}),
        ({"state": "current"}, "", {}),
        ({}, "updates: {check: false}\n", {}),
        ({}, "", {"NEDURA_SUPERVISED_CHILD": "1"}),
    ],
)
def test_nothing_is_said_about_other_code_or_against_the_config(
    home: Path, fields: dict[str, object], config: str, environ: dict[str, str]
) -> None:
    remember(home, **fields)
    (home / "config.yaml").write_text(config)
    asked = {**os.environ, "NEDURA_HOME": str(home)}
    assert newer_version(home, {**asked, **environ}) == ""
    remember_again = json.loads((home / "update_check.json").read_text())
    assert remember_again["state"] in ("behind", "current")


def test_a_conversation_is_kept_when_the_profile_changes(home: Path) -> None:
    create_profile(home, "coder")
    session = Session(home, find_look(home=home))
    session.talk.answered("hello", "hi")
    asyncio.run(session.run(parse("/profile coder"), PlainShell(session, Output())))
    assert session.talk.messages == []
    kept = list((home / "sessions").glob("shell-*.json"))
    assert len(kept) == 1
    assert json.loads(kept[0].read_text())["messages"][0]["content"] == "hello"
    asyncio.run(session.run(parse("/profile default"), PlainShell(session, Output())))
    session.talk.answered("again", "yes")
    session.keep()
    assert len(list((home / "sessions").glob("shell-*.json"))) == 2
