"""The shell as the real program on a real terminal, against the development portal."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from nedura.config import edit_config, set_value
from nedura.profiles import create_profile
from nedura.testing.portal import PortalControl
from nedura_cli.tables import cells
from tests.kits.terminal import Screen, open_screen, ready

SIZES = [(24, 80), (50, 200), (20, 40)]


def env(portal: PortalControl) -> dict[str, str]:
    return {"NEDURA_PORTAL_BASE_URL": portal.url, "NOUS_INFERENCE_BASE_URL": f"{portal.url}/v1"}


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_it_starts_helps_and_leaves_at_every_size(home: Path, rows: int, columns: int) -> None:
    with open_screen(home=home, rows=rows, columns=columns) as screen:
        ready(screen)
        screen.send("/help\r")
        screen.until("leave")
        assert max(cells(line) for line in screen.lines) <= columns
        screen.send("\x04")
        assert screen.ended() == 0
        assert "Goodbye." in screen.text


def test_an_ascii_terminal_sees_ascii(home: Path) -> None:
    with open_screen(home=home, environ={"LC_ALL": "C"}) as screen:
        ready(screen)
        screen.send("/skin ares\r/help\r")
        screen.until("Orders")
        screen.send("/quit\r")
        assert screen.ended() == 0
        assert screen.text.isascii()


def test_no_color_means_no_colour(home: Path) -> None:
    with open_screen(home=home, environ={"NO_COLOR": "1"}) as screen:
        ready(screen)
        screen.send("/help\r")
        screen.until("Commands")
        assert not re.search(rb"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;|m)", screen.raw)


def test_commands_profiles_and_skins_are_completed(home: Path) -> None:
    create_profile(home, "coder")
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("/pro")
        screen.until("list or switch profiles")
        screen.send("\t")
        screen.until("❯ /profile")
        screen.send(" co")
        screen.until("coder")
        screen.send("\t\r\r")
        screen.until("This shell works on coder now.")
        screen.until(
            lambda screen: " coder " in screen.lines[-1] or any(" coder │" in line for line in screen.lines)
        )


def test_a_typo_gets_a_suggestion(home: Path) -> None:
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("/logni\r")
        screen.until("Did you mean /login?")


def test_history_is_kept_private_and_masked(home: Path) -> None:
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("/model hermes-x\r")
        screen.until("The model is hermes-x for this session.")
        screen.send("/model api_key=abcdefghijkl\r")
        screen.until("for this session.")
        screen.send("/quit\r")
        screen.ended()
    path = home / "shell_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "abcdefghijkl" not in path.read_text()
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("\x1b[A\x1b[A\x1b[A")
        screen.until("/model hermes-x")


def test_a_skin_is_for_the_session_unless_saved(home: Path) -> None:
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("/skin ares\r")
        screen.until("The skin is ares for this session.")
        screen.until("⚔")
        assert not (home / "config.yaml").exists()
        screen.send("/skin slate --save\r")
        screen.until("The skin is slate from now on.")
        assert "skin: slate" in (home / "config.yaml").read_text()
        screen.send("/skin ../../etc/passwd\r")
        screen.until("is no skin name")


def test_a_resize_in_the_middle_keeps_the_prompt(home: Path) -> None:
    with open_screen(home=home, rows=24, columns=80) as screen:
        ready(screen)
        screen.send("half a li")
        screen.until("half a li")
        screen.resize(20, 40)
        screen.pump(0.5)
        screen.send("ne")
        screen.until("half a line")
        screen.resize(50, 200)
        screen.pump(0.5)
        screen.send("\x03")
        screen.until(lambda screen: "half a line" not in screen.lines[-1])
        screen.send("/quit\r")
        assert screen.ended() == 0


def sign_in(screen: Screen, portal: PortalControl) -> None:
    screen.send("/login\r")
    screen.until("c copies the link")
    portal.decide(portal.wait_for_code())
    screen.until("Signed in as alice@example.test.")


def test_a_login_runs_beside_the_prompt(home: Path, portal: PortalControl) -> None:
    with open_screen(home=home, rows=40, environ=env(portal)) as screen:
        ready(screen)
        screen.send("/login\r")
        screen.until("c copies the link")
        code = portal.wait_for_code()
        screen.until(f"\n{code}\n")
        screen.until("share it with nobody")
        assert re.search(rf"Signing in: code {code}, \d+:\d\d left", screen.text)
        link = next(line for line in screen.text.splitlines() if line.startswith("http"))
        assert code in link or "user_code" in link
        screen.send("\r")
        screen.until("No browser is opened here: there is no display.")
        screen.send("c")
        screen.until("Asked your terminal to copy it.")
        assert b"\x1b]52;c;" in screen.raw
        screen.send("r")
        screen.until("█")
        screen.send("r")
        screen.send("typing goes on")
        screen.until("❯ typing goes on")
        screen.send("\x15/login\r")
        screen.until("A sign-in is running already.")
        assert len([one for one in portal.state()["grants"] if one["status"] == "pending"]) == 1
        portal.decide(code)
        screen.until("Signed in as alice@example.test.")
        screen.until(lambda screen: any("alice@example.test │" in line for line in screen.lines))
        assert "Signing in:" not in "\n".join(screen.lines[-6:])


@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_a_login_is_cancelled_by_escape_and_ctrl_c(home: Path, portal: PortalControl, key: str) -> None:
    with open_screen(home=home, environ=env(portal)) as screen:
        ready(screen)
        screen.send("/login\r")
        screen.until("c copies the link")
        screen.send(key)
        screen.until("cancelled")
        screen.until(lambda screen: "Signing in: code" not in "\n".join(screen.lines))
        assert not (home / "auth.json").exists()
        screen.send("/quit\r")
        assert screen.ended() == 0


def test_a_small_terminal_says_that_the_qr_code_does_not_fit(home: Path, portal: PortalControl) -> None:
    with open_screen(home=home, rows=20, columns=40, environ=env(portal)) as screen:
        ready(screen)
        screen.send("/login\r")
        screen.until("Signing in: code")
        screen.send("r")
        screen.until("does not fit")


def test_an_ascii_terminal_gets_no_qr_code_of_question_marks(home: Path, portal: PortalControl) -> None:
    with open_screen(home=home, rows=40, environ={**env(portal), "LC_ALL": "C"}) as screen:
        ready(screen)
        screen.send("/login\r")
        screen.until("Signing in: code")
        screen.send("r")
        screen.until("it needs Unicode")
        assert "???" not in screen.text


def test_an_error_is_not_drawn_as_an_answer_and_words_stay_whole(home: Path) -> None:
    with open_screen(home=home, rows=30, columns=40) as screen:
        ready(screen)
        screen.send("hello\r")
        screen.until("Nobody is signed in.")
        screen.send("/skin nope\r")
        screen.until("There is no skin 'nope'. See: /skin")
        screen.send("/help\r")
        screen.until("Ctrl-C stops an answer")
        assert "⚕" not in screen.text
        assert "skin default" not in screen.text
        assert "\n    skin\n" in screen.text or "a skin\n" in screen.text


def test_messages_are_answered_stopped_and_remembered(home: Path, portal: PortalControl) -> None:
    with open_screen(home=home, rows=40, environ=env(portal)) as screen:
        ready(screen)
        sign_in(screen, portal)
        edit_config(home, lambda content: set_value(content, "model.default", "nous/hermes-4-405b"))
        screen.send("hello there\r")
        screen.until("You said: hello there")
        screen.until("⚕ Nedura")
        screen.until(lambda screen: screen.text.count("╰") == 2)
        screen.send("w " * 600 + "\r")
        screen.until("Ctrl-C stops")
        screen.send("more")
        screen.until("❯ more")
        screen.send("\r")
        screen.until("An answer is on its way")
        screen.until("❯ more")
        screen.send("\x15\x03")
        screen.until("Stopped.")
        screen.send("/logout\r")
        screen.until("Signed out")
        screen.send("\x04")
        assert screen.ended() == 0
    saved = list((home / "sessions").glob("shell-*.json"))
    assert len(saved) == 1
    assert stat.S_IMODE(saved[0].stat().st_mode) == 0o600
    messages = json.loads(saved[0].read_text())["messages"]
    assert messages[:2] == [
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "You said: hello there"},
    ]


def test_one_message_from_a_script(home: Path, portal: PortalControl) -> None:
    import os
    import subprocess
    import sys

    with open_screen(home=home, environ=env(portal)) as screen:
        ready(screen)
        sign_in(screen, portal)
    edit_config(home, lambda content: set_value(content, "model.default", "nous/hermes-4-405b"))
    done = subprocess.run(
        [sys.executable, "-m", "nedura_cli", "-z", "one two"],
        env={**os.environ, **env(portal), "NEDURA_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=40,
    )
    assert (done.returncode, done.stdout) == (0, "You said: one two\n"), done.stderr


def test_ctrl_c_at_the_prompt_only_hints(home: Path) -> None:
    with open_screen(home=home) as screen:
        ready(screen)
        screen.send("\x03")
        screen.until("Ctrl-D or /quit leaves.")
        screen.send("\x04")
        assert screen.ended() == 0


def test_plain_is_append_only(home: Path) -> None:
    with open_screen("--plain", home=home) as screen:
        screen.until("❯")
        screen.send("/help\r")
        screen.until("Anything else is a message")
        screen.send("/skin ares\r")
        screen.until("\n⚔")
        screen.send("/quit\r")
        assert screen.ended() == 0
        assert b"\x1b" not in screen.raw


def test_a_plain_login_says_what_to_do_with_link_and_code(home: Path, portal: PortalControl) -> None:
    with open_screen(home=home, environ={**env(portal), "ACCESSIBLE": "1"}) as screen:
        screen.until("❯")
        screen.send("/login\r")
        code = portal.wait_for_code()
        screen.until("Waiting for the sign-in in the browser")
        told = screen.text[screen.text.index("Open this page") :].splitlines()
        assert told[1].startswith(portal.url)
        assert told[2] == code
        portal.decide(code)
        screen.until("Signed in as alice@example.test.")
        screen.send("/quit\r")
        assert screen.ended() == 0
        assert b"\x1b" not in screen.raw


def test_without_a_terminal_there_is_help(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "nedura_cli"],
        env={**os.environ, "NEDURA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: nedura")
