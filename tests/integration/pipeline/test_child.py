"""Children that are dead, missing, lying, wedged or flooding: the update is committed, exit 0, and the completion stays owed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from nedura.update import UpdateOptions
from tests.kits.pipeline import GOOD_CHILD, INSTALL_ID, Toy, gone

BAD = {
    "dies at once": "raise SystemExit(1)\n",
    "exits 0 without a word": "",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "syntax error": "def (\n",
    "exit code lies": GOOD_CHILD + "close(code=0)\nsys.exit(7)\n",
    "another run's result": GOOD_CHILD + "request['update_id'] = 'other'\nclose()\n",
    "another run's nonce": GOOD_CHILD + "request['nonce'] = 'forged'\nclose()\n",
    "success without receipt": GOOD_CHILD
    + "json.dump({'schema': 1, 'update_id': request['update_id'], 'nonce': request['nonce'], 'exit_code': 0,"
    " 'receipt': None}, open(result_path, 'w'))\n",
    "receipt still running": GOOD_CHILD + "close(outcome='running')\n",
    "success that is a failure": GOOD_CHILD + "close(outcome='failed')\n",
    "a failure behind the commit point": GOOD_CHILD + "close(outcome='failed', code=1)\nsys.exit(1)\n",
    "refused behind the commit point": GOOD_CHILD + "close(outcome='refused', code=2)\nsys.exit(2)\n",
    "success with an exit code of its own": GOOD_CHILD + "close(outcome='success', code=1)\nsys.exit(1)\n",
    "the receipt's exit code is another": GOOD_CHILD
    + "receipt = close(code=1)\nclose(code=0, exit_code=1)\n",
    "the receipt's exit code is a word": GOOD_CHILD + "close(code=0, exit_code='none')\n",
    "result is no json": GOOD_CHILD + "open(result_path, 'w').write('{')\n",
    "result is a list": GOOD_CHILD + "open(result_path, 'w').write('[1]')\n",
    "a line without end": GOOD_CHILD + "os.write(fd, b'x' * 200_000)\nclose()\n",
}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_child_is_a_follow_up_not_a_failure(tmp_path: Path, how: str) -> None:
    toy = Toy(tmp_path / "home", child=BAD[how])
    finished, events = await toy.run()
    assert (finished.outcome, finished.exit_code) == ("success", 0), finished
    assert finished.followups == ("completion",)
    assert toy.current == "000002"
    assert toy.tail_armed
    assert toy.latest()["outcome"] == "success"
    (row,) = toy.latest()["followups"]
    assert row["step"] == "completion"
    (line,) = [event.copy_terminal for event in events if event.kind == "follow_up"]
    assert "'completion'" in line
    assert "\n" not in line


async def test_a_child_that_cannot_be_started_is_a_follow_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(tmp_path / "home")

    def nowhere(*args: object) -> None:
        raise OSError(28, "No space left on device")

    finished, _ = await toy.run(spawn=nowhere)
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ("completion",))
    assert toy.tail_armed


async def test_a_wedged_child_is_ended_at_the_deadline_with_its_whole_tree(tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild"
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + f"import subprocess, time\np = subprocess.Popen(['sleep', '300'])\nopen({str(grandchild)!r}, 'w').write(str(p.pid))\n"
        "tell(kind='step', name='begun')\ntime.sleep(300)\n",
    )
    began = time.monotonic()
    finished, _events = await toy.run(UpdateOptions(deadline=3.0))
    assert time.monotonic() - began < 12
    assert finished.followups == ("completion",)
    assert "deadline" in toy.latest()["followups"][0]["reason"]
    assert gone(int(grandchild.read_text()))
    assert [row["name"] for row in toy.latest()["steps"]] == ["begun"]


async def test_a_flood_of_output_and_events_is_bounded(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD + "for _ in range(4000):\n    sys.stdout.write('\\x1b[31m' + 'A' * 10_000 + '\\n')\n"
        "for i in range(1_000_000):\n    tell(kind='made_up', number=i, text='\\x1b]0;title\\x07')\nclose()\n",
    )
    before = psutil.Process().memory_info().rss
    finished, events = await toy.run()
    assert finished.followups == ("completion",)
    assert "too much" in toy.latest()["followups"][0]["reason"]
    assert psutil.Process().memory_info().rss - before < 200 * 1024 * 1024
    receipt = json.dumps(toy.latest())
    assert "\\u001b" not in receipt
    assert len(toy.latest()["foreign"]) == 200
    log = (toy.home / "logs/update.log").read_bytes()
    assert b"\x1b" not in log
    assert len(log) < 4 * 1024 * 1024
    foreign = next(event for event in events if event.kind == "made_up")
    assert type(foreign).__name__ == "ForeignEvent"


async def test_unknown_kinds_are_reyielded_with_their_copy(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "tell(kind='from_the_future', copy='Hello.', copy_terminal='hello \\x1b[31mred', n=[1])\nclose()\n",
    )
    _, events = await toy.run()
    (event,) = [event for event in events if event.kind == "from_the_future"]
    assert event.copy == "Hello."
    assert event.copy_terminal == "hello red"


async def test_a_child_cannot_say_how_the_run_ended_by_an_event(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "tell(kind='update_finished', run_id='x', outcome='success', exit_code=0)\nsys.exit(3)\n",
    )
    finished, events = await toy.run()
    assert finished.followups == ("completion",)
    assert [event.kind for event in events].count("update_finished") == 1


async def test_a_receipt_that_the_child_closed_before_it_died_counts(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "receipt = close()\nos.unlink(result_path)\njson.dump(receipt, open(request['receipt_path'], 'w'))\n"
        "os.kill(os.getpid(), 9)\n",
    )
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ())


async def test_the_last_words_of_a_child_that_died_give_no_credential_away(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child="import sys\nsys.exit('pip: https://user:hunter2hunter2@host/simple is gone')\n",
    )
    _, events = await toy.run()
    said = json.dumps(toy.latest()) + "".join(event.copy_terminal for event in events)
    assert "is gone" in said
    assert "hunter2" not in said


async def test_a_receipt_on_disk_that_claims_a_failure_is_not_believed(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "receipt = close(outcome='failed', code='x')\nos.unlink(result_path)\n"
        + "json.dump(receipt, open(request['receipt_path'], 'w'))\nos.kill(os.getpid(), 9)\n",
    )
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ("completion",))


async def test_an_accepted_receipt_keeps_what_only_the_parent_knows_and_no_escapes(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "close(started_at='2001-01-01T00:00:00Z', pid='none', argv=None, install_id='another', steps=[{'name': 'x\x1b[31my'}],"
        " stop_reason='a\x1b]0;t\x07b', followups='odd')\n",
    )
    finished, _ = await toy.run()
    assert (finished.outcome, finished.exit_code, finished.followups) == ("success", 0, ())
    receipt = toy.latest()
    assert (receipt["pid"], receipt["install_id"], receipt["argv"] is None) == (
        os.getpid(),
        INSTALL_ID,
        False,
    )
    assert not receipt["started_at"].startswith("2001")
    assert "\\u001b" not in json.dumps(receipt)
    assert "\x1b" not in finished.stop_reason
    assert len(toy.receipts()) == 1


LEFT_BEHIND = {
    "in its session": ("", True),
    "in a session of its own, with the lock": ("    os.setsid()\n", True),
    "in a session of its own, without the lock": (
        "    os.setsid()\n    [os.close(n) for n in range(3, 60) if n != fd and os.path.exists(f'/proc/self/fd/{n}')]\n",
        False,
    ),
}


@pytest.mark.parametrize("how", LEFT_BEHIND)
async def test_a_leftover_that_keeps_the_event_pipe_open_does_not_hold_the_update_up(
    tmp_path: Path, how: str
) -> None:
    """The child is done and its result is there; what it left behind is ended when it is of its session or holds the install's lock."""
    apart, ended = LEFT_BEHIND[how]
    mark = tmp_path / "leftover"
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "tell(kind='step', name='begun')\nclose()\nimport time\nif os.fork() == 0:\n"
        + apart
        + f"    open({str(mark)!r}, 'w').write(str(os.getpid()))\n    time.sleep(40)\n    os._exit(0)\n"
        + f"while not os.path.exists({str(mark)!r}):\n    time.sleep(0.01)\nos._exit(0)\n",
    )
    began = time.monotonic()
    finished, _ = await toy.run(UpdateOptions(deadline=60.0))
    took = time.monotonic() - began
    leftover = int(mark.read_text())
    assert gone(leftover) is ended
    if not ended:
        os.kill(leftover, signal.SIGKILL)
    assert took < 20
    assert (finished.outcome, finished.followups) == ("success", ())
    again, _ = await Toy(toy.home, changed=False).run()
    assert again.exit_code == 0, "the install is free"


@pytest.mark.parametrize("how", ["deadline", "flood", "cancelled"])
async def test_nothing_that_holds_the_installs_lock_outlives_a_child_that_is_ended(
    tmp_path: Path, how: str
) -> None:
    """A process that left the child's session still belongs to it: it would keep the install locked for ever."""
    mark = tmp_path / "apart"
    rest = "for i in range(1_000_000):\n    tell(kind='x')\n" if how == "flood" else "time.sleep(300)\n"
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "import time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n    os.close(fd)\n"
        + f"    open({str(mark)!r}, 'w').write(str(os.getpid()))\n    time.sleep(300)\n"
        + f"while not os.path.exists({str(mark)!r}) or not open({str(mark)!r}).read():\n    time.sleep(0.01)\n"
        + f"tell(kind='step', name='begun')\n{rest}",
    )

    stream = toy.stream(UpdateOptions(deadline=3.0 if how == "deadline" else 60.0))
    async with aclosing(stream) as events:
        async for event in events:
            if event.kind == "step" and how == "cancelled":
                break
    assert gone(int(mark.read_text()))
    again, _ = await Toy(toy.home, changed=False).run()
    assert again.exit_code == 0, again


@pytest.mark.parametrize("times", [1, 5])
async def test_cancelling_ends_the_tree_before_the_lock_is_free(tmp_path: Path, times: int) -> None:
    """However often it is asked for: the child, which here ignores being asked, is gone before the caller goes on."""
    mark = tmp_path / "pid"
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD
        + "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntell(kind='step', name='begun')\ntime.sleep(300)\n",
    )

    async def consume() -> None:
        async for _ in toy.stream():
            pass

    task = asyncio.ensure_future(consume())
    while not mark.exists() or not mark.read_text():
        await asyncio.sleep(0.02)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(int(mark.read_text()))
    receipt = toy.latest()
    assert (receipt["outcome"], receipt["exit_code"]) == ("interrupted", 130)
    assert "after the commit point" in receipt["stop_reason"]
    assert toy.tail_armed
    assert not (toy.home / ".nedura-update-in-progress").exists()


async def test_the_child_is_isolated_and_keeps_the_install_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", "/nowhere")
    report = tmp_path / "report.json"
    toy = Toy(
        tmp_path / "home",
        child=GOOD_CHILD + "import fcntl, glob\n"
        "held = [os.readlink(p) for p in glob.glob('/proc/self/fd/*') if os.path.islink(p)]\n"
        f"json.dump({{'env': dict(os.environ), 'path': sys.path, 'flags': list(sys.flags), 'sid': os.getsid(0), 'pid': os.getpid(),"
        f" 'held': held, 'cwd': os.getcwd(), 'cache': sys.pycache_prefix}}, open({str(report)!r}, 'w'))\nclose()\n",
    )
    await toy.run()
    seen = json.loads(report.read_text())
    assert not {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"} & set(seen["env"])
    assert seen["env"]["NEDURA_HOME"] == str(toy.home)
    assert not any("site-packages" in place for place in seen["path"])
    assert seen["sid"] == seen["pid"] != os.getpid()
    assert any(name.endswith(".nedura-update.lock") for name in seen["held"])
    assert seen["cwd"] == str(toy.paths.generations / "000002/tree")
    assert "nedura-completion-" in seen["cache"]
    assert not Path(seen["cache"]).exists()
