"""The word of a newer version where commands are typed: at most daily, and no start ever waits for the network."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.kits.site import World, world
from tests.kits.terminal import open_screen

PATIENCE = 15.0
"""A loaded machine's allowance; a start that waited for the fetch would take 300 s."""


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def place() -> Iterator[World]:
    with world() as made:
        yield made
        for process in checks(made):
            process.kill()


def checks(place: World) -> list[psutil.Process]:
    """Background checks of this home, by the environment that they were given."""
    found = []
    for process in psutil.process_iter():
        try:
            if "--passive" in process.cmdline() and process.environ().get("NEDURA_HOME") == str(place.home):
                found.append(process)
        except psutil.Error:
            continue
    return found


def typed(place: World, *words: str) -> tuple[str, float]:
    """What a person at a terminal sees of a command, and how many seconds it took."""
    began = time.monotonic()
    with open_screen(
        *words, home=place.home, columns=120, environ=place.environ, launcher=place.site.launcher
    ) as screen:
        assert screen.ended() == 0
        return screen.text, time.monotonic() - began


def record(place: World) -> dict[str, object]:
    value: dict[str, object] = json.loads((place.home / "update_check.json").read_text())
    return value


def test_a_start_does_not_wait_for_a_remote_that_never_answers(place: World) -> None:
    install = place.site.paths.record
    kept = json.loads(install.read_text())
    (place.home / "update_check.json").unlink(missing_ok=True)
    typed(place, "skin", "list", "--json")
    assert not (place.home / "update_check.json").exists(), "a reader of JSON starts nothing"
    with black_hole() as port:
        install.write_text(json.dumps({**kept, "remote_url": f"https://127.0.0.1:{port}/x.git"}))
        text, seconds = typed(place, "skin", "list")
        assert "daylight" in text
        assert seconds < PATIENCE
        until = time.monotonic() + 10
        while not (running := checks(place)) and time.monotonic() < until:
            time.sleep(0.02)
        assert len(running) == 1, "one check, in the background"
        first = record(place)["at"]
        for _ in range(2):
            _, seconds = typed(place, "skin", "list")
            assert seconds < PATIENCE
        assert record(place)["at"] == first, "no second one within the hour"
        assert {process.pid for process in checks(place)} <= {running[0].pid}
        for process in [*running[0].children(recursive=True), running[0]]:
            process.kill()
    install.write_text(json.dumps(kept))


def test_a_command_says_it_once_a_day_and_the_shell_at_each_start(place: World) -> None:
    place.site.origin.commit({"README.md": "newer\n"})
    checked = place.command("update", "--check")
    assert checked.returncode == 0, checked.stderr
    assert record(place)["state"] == "behind"
    word = "A newer version is available (1 commit on main)"
    assert word in typed(place, "skin", "list")[0]
    assert word not in typed(place, "skin", "list")[0]
    (place.home / "update_check.json").write_text(json.dumps({**record(place), "told": time.time() - 90_000}))
    assert word not in typed(place, "skin", "list", "--json")[0]
    assert word not in place.command("skin", "list").stdout + place.command("skin", "list").stderr, (
        "no terminal, no word"
    )
    assert word in typed(place, "skin", "list")[0]


def test_a_root_that_looks_into_another_users_home_writes_nothing(place: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a home to somebody else")
    from nedura.product import NEDURA
    from nedura.update.notice import passive_notice

    home = place.folder / "theirs"
    home.mkdir(0o700)
    os.chown(home, 65534, 65534)
    assert passive_notice(home, NEDURA, "a" * 40, Path("/bin/true"), now=1.0) == ""
    assert list(home.iterdir()) == []
