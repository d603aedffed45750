"""The control socket under hostile clients, foreign sockets and a second uid (threats.md 5)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nedura.fleet import FleetMember, MemberOptions, ask, ask_now, bind_socket, find_socket, look
from nedura.fleet.control_protocol import success
from nedura.fleet.control_server import ControlServer
from nedura.fleet.drain import DrainSettings
from nedura.fleet.socketpath import MAX_PATH, fallback_folders, socket_folder, socket_name
from tests.kits.fleet import wait_async, wait_for

OPTIONS = MemberOptions(settings=DrainSettings(cron_s=0, grace_s=1), watchdogs=False)
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a second uid needs root")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def long_home(tmp_path: Path) -> Path:
    folder = tmp_path / ("x" * 60) / ("y" * 60)
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="nedura-fleet-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def raw(home: Path, data: bytes, *, wait: float = 3.0) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(home / "gateway.sock"))
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), wait)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{\n", "bad_json"),
        (b"[]\n", "not_an_object"),
        (b'{"verb":"purge"}\n', "unknown_verb"),
        (b"[" * 50_000 + b"\n", "bad_json"),
        (b'{"verb":"status","params":[]}\n', "bad_params"),
    ],
)
async def test_one_bad_line_gets_one_answer(home: Path, line: bytes, error: str) -> None:
    async with FleetMember(home, OPTIONS):
        answer: dict[str, Any] = json.loads(await raw(home, line))
        assert (answer["ok"], answer["error"], answer["protocol"]) == (False, error, 1)
        if error == "unknown_verb":
            assert answer["supported_verbs"] == ["identify", "pause-for-update", "rescan-profiles", "status"]
        assert await look(home) is not None


async def test_too_much_or_nothing_is_closed_without_an_answer(home: Path) -> None:
    async with FleetMember(home, OPTIONS):
        assert await raw(home, b"x" * (10 * 1024 * 1024)) == b""
        assert await raw(home, b"", wait=4) == b""
        assert await look(home) is not None


HOSTILE = """
import os, select, socket, sys, time
path = sys.argv[1]
def connect():
    link = socket.socket(socket.AF_UNIX); link.settimeout(1)
    try: link.connect(path)
    except OSError: link.close(); return None
    link.setblocking(False)
    return link
idle = [connect() for _ in range(200)]
drips = [connect() for _ in range(200)]
flood = connect()
print("ready", flush=True)
while True:
    for index, link in enumerate(drips):
        try: link.send(b"{")
        except BlockingIOError: pass
        except (OSError, AttributeError):
            if link: link.close()
            drips[index] = connect()
    try: flood.send(b"y" * 1048576)
    except BlockingIOError: pass
    except (OSError, AttributeError):
        if flood: flood.close()
        flood = connect()
    time.sleep(0.05)
"""


async def test_four_hundred_hostile_clients_do_not_keep_it_from_answering(home: Path) -> None:
    async with FleetMember(home, OPTIONS) as member:
        assert await ask(home, "identify")
        before = descriptors()
        hostile = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-c", HOSTILE, str(home / "gateway.sock")],
            stdout=subprocess.PIPE,
        )
        assert hostile.stdout is not None
        await asyncio.to_thread(hostile.stdout.readline)
        slowest = turn = 0.0
        try:
            for _ in range(8):
                start = time.monotonic()
                assert await _insist(home)
                slowest = max(slowest, time.monotonic() - start)
                start = time.monotonic()
                async with member.turn():
                    await asyncio.sleep(0)
                turn = max(turn, time.monotonic() - start)
                await asyncio.sleep(0.1)
        finally:
            hostile.kill()
            await asyncio.to_thread(hostile.communicate)
        await wait_async(
            lambda: descriptors() <= before + 2, 5, "the way back to the old number of descriptors"
        )
    assert slowest < 1.0, slowest
    assert turn < 0.1, turn


async def _insist(home: Path) -> dict[str, Any] | None:
    """What every caller may do: ask again within its own second."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        answer = await ask(home, "identify", timeout=1.0)
        if answer is not None:
            return answer
    return None


async def test_a_long_home_falls_back_to_a_private_folder(long_home: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    short = len(os.fsencode(runtime / "nedura" / socket_name(long_home, "gateway"))) <= MAX_PATH
    bound = bind_socket(long_home, "gateway", environ)
    try:
        assert bound.pointer == long_home / "gateway.sock.path"
        assert stat.S_IMODE(os.lstat(bound.path).st_mode) == 0o600
        assert stat.S_IMODE(os.lstat(bound.path.parent).st_mode) == 0o700
        assert find_socket(long_home, "gateway", environ) == bound.path
        assert short is (bound.path.parent == runtime / "nedura")
    finally:
        bound.close()
    assert not bound.path.exists()
    assert find_socket(long_home, "gateway", environ) is None


async def test_a_pointer_whose_socket_is_gone_is_no_answer(tmp_path: Path) -> None:
    """A tidied /tmp, a member that ends while it is looked for: the client falls back to the files, it never raises."""
    home = tmp_path / ("x" * 90) / "home"
    home.mkdir(parents=True)
    bound = bind_socket(home, "gateway", os.environ)
    assert bound is not None
    assert bound.path.parent != home
    try:
        assert find_socket(home, "gateway", os.environ) == bound.path
        bound.path.unlink()
        assert find_socket(home, "gateway", os.environ) is None
        assert await ask(home, "identify") is None
        assert ask_now(home, "identify") is None
    finally:
        bound.close()


async def test_a_pointer_may_name_our_folders_only(long_home: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "f.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(foreign))
        os.chmod(foreign, 0o600)
        server.listen()
        for target in (foreign, tmp_path / ".." / "f.sock", Path("relative.sock"), Path("/dev/null")):
            (long_home / "gateway.sock.path").write_text(f"{target}\n")
            assert find_socket(long_home, "gateway", os.environ) is None
            assert await ask(long_home, "identify") is None


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path must be short, and pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="nf-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("junk", ["file", "link"])
def test_what_stands_in_the_sockets_place_stays_and_another_place_serves(
    home: Path, short_folder: Path, junk: str
) -> None:
    place = home / "gateway.sock"
    if junk == "file":
        place.write_text("precious")
    else:
        place.symlink_to("/dev/null")
    assert find_socket(home, "gateway", os.environ) is None
    environ = {"XDG_RUNTIME_DIR": str(short_folder)}
    bound = bind_socket(home, "gateway", environ)
    assert bound.path.parent == short_folder / "nedura"
    assert find_socket(home, "gateway", environ) == bound.path
    bound.close()
    assert place.is_symlink() if junk == "link" else place.read_text() == "precious"


def test_sockets_of_the_dead_are_swept_from_the_fallback_folder(long_home: Path, short_folder: Path) -> None:
    folder = short_folder / "nedura"
    folder.mkdir(mode=0o700)
    dead, foreign, alive = (
        folder / f"{name}.sock" for name in (f"gateway-{'a' * 16}", "mine", f"chat-{'b' * 16}")
    )
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(str(dead))
        two.bind(str(foreign))
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(alive))
        living.listen(1)
        bind_socket(long_home, "gateway", {"XDG_RUNTIME_DIR": str(short_folder)}).close()
        assert (dead.exists(), foreign.exists(), alive.exists()) == (False, True, True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says EAGAIN for a full backlog")
async def test_a_full_backlog_is_tried_again(home: Path) -> None:
    bound = bind_socket(home, "gateway", os.environ, backlog=0)
    blocker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        blocker.connect(str(bound.path))

        async def serve() -> None:
            await asyncio.sleep(0.15)
            bound.socket.setblocking(False)
            bound.socket.accept()[0].close()
            loop = asyncio.get_running_loop()
            link, _ = await loop.sock_accept(bound.socket)
            with link:
                await loop.sock_recv(link, 4096)
                await loop.sock_sendall(link, success({"pid": os.getpid()}, 1))

        answer, _ = await asyncio.gather(ask(home, "identify", timeout=5), serve())
        assert (answer or {})["pid"] == os.getpid()
    finally:
        blocker.close()
        bound.close()


def test_a_stale_socket_is_replaced_and_a_successors_is_not_removed(home: Path) -> None:
    first = bind_socket(home, "gateway", os.environ)
    second = bind_socket(home, "gateway", os.environ)
    first.close()
    assert find_socket(home, "gateway", os.environ) == second.path
    second.close()
    assert not (home / "gateway.sock").exists()


def test_an_open_mode_is_not_trusted(home: Path) -> None:
    bound = bind_socket(home, "gateway", os.environ)
    try:
        os.chmod(bound.path, 0o666)
        assert find_socket(home, "gateway", os.environ) is None
    finally:
        bound.close()


FAKE = """
import json, os, socket, sys
path, answer = sys.argv[1], json.loads(sys.argv[2])
os.umask(0o177)
server = socket.socket(socket.AF_UNIX)
server.bind(path); server.listen()
print("ready", flush=True)
while True:
    link, _ = server.accept()
    link.makefile("rb").readline()
    link.sendall(json.dumps({"ok": True, "protocol": 1, "result": answer}).encode() + b"\\n")
    link.close()
"""


def fake_server(path: Path, answer: dict[str, Any], user: int | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        ["/usr/bin/python3" if user else sys.executable, "-c", FAKE, str(path), json.dumps(answer)],
        stdout=subprocess.PIPE, text=True, user=user, cwd="/",
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("claimed", [1, "self"])
def test_a_forged_pid_is_no_answer(home: Path, claimed: int | str) -> None:
    """`identify` says another pid than the kernel does: nothing is believed, so nothing can be signalled for it."""
    pid = os.getpid() if claimed == "self" else claimed
    process = fake_server(
        home / "gateway.sock", {"pid": pid, "nedura_home": str(home), "gateway_state": "running"}
    )
    try:
        assert ask_now(home, "identify") is None
        assert asyncio.run(look(home)) is None
    finally:
        process.kill()
        process.communicate()


def test_an_answer_for_another_home_is_none(home: Path, tmp_path: Path) -> None:
    process = fake_server(home / "gateway.sock", {})
    process.kill()
    process.communicate()
    (home / "gateway.sock").unlink()
    code = FAKE.replace(
        "answer = sys.argv[1], json.loads(sys.argv[2])",
        "answer = sys.argv[1], {**json.loads(sys.argv[2]), 'pid': os.getpid()}",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "gateway.sock"), json.dumps({"nedura_home": str(tmp_path)})],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert ask_now(home, "identify") is not None
        assert asyncio.run(look(home)) is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.root
@needs_root
def test_another_user_cannot_squat_or_relay(shared: Path) -> None:
    """A second uid binds the path first, in a home folder it may write: the client talks to nobody."""
    home = shared / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    process = fake_server(home / "gateway.sock", {"pid": 1, "nedura_home": str(home)}, user=NOBODY)
    try:
        assert find_socket(home, "gateway", os.environ) is None
        assert ask_now(home, "identify") is None
        os.chown(home / "gateway.sock", 0, 0)  # the name now looks right; the kernel still knows who listens
        assert find_socket(home, "gateway", os.environ) is not None
        assert ask_now(home, "identify") is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.root
@needs_root
def test_another_user_cannot_drive_our_socket(shared: Path) -> None:
    home = shared / "home"
    home.mkdir(mode=0o755)
    client = textwrap.dedent(
        """
        import socket, sys
        link = socket.socket(socket.AF_UNIX); link.settimeout(5)
        try:
            link.connect(sys.argv[1])
            link.sendall(b'{"verb":"pause-for-update"}\\n')
            print(len(link.recv(4096)))
        except OSError as error:
            print(type(error).__name__)
        """
    )

    async def scene() -> tuple[str, str, bool]:
        async with FleetMember(home, OPTIONS) as member:
            said = []
            for mode in (0o600, 0o666):
                os.chmod(home / "gateway.sock", mode)
                result = await asyncio.to_thread(
                    subprocess.run,
                    ["/usr/bin/python3", "-c", client, str(home / "gateway.sock")],
                    user=NOBODY, capture_output=True, text=True, timeout=20, cwd="/", check=False,
                )  # fmt: skip
                said.append(result.stdout.strip())
            return said[0], said[1], member.draining

    closed, forced, draining = asyncio.run(scene())
    assert closed == "PermissionError"
    assert forced in ("0", "ConnectionResetError", "BrokenPipeError"), "connected, but got no answer"
    assert not draining


@pytest.mark.root
@needs_root
def test_a_squatted_fallback_folder_is_not_used(shared: Path, long_home: Path) -> None:
    runtime = shared / "run"
    runtime.mkdir()
    squatted = runtime / "nedura"
    squatted.mkdir(mode=0o777)
    os.chown(squatted, NOBODY, NOBODY)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    assert not socket_folder(squatted, 0)
    assert fallback_folders(0, environ)[0] == squatted
    bound = bind_socket(long_home, "gateway", environ)
    try:
        assert bound.path.parent != squatted
    finally:
        bound.close()


def test_a_dead_server_is_no_answer_at_once(home: Path) -> None:
    process = fake_server(home / "gateway.sock", {})
    process.kill()
    process.communicate()
    start = time.monotonic()
    assert ask_now(home, "identify") is None
    assert time.monotonic() - start < 0.5
    wait_for(lambda: process.poll() is not None)


class OutOfDescriptors(socket.socket):
    """A listening socket whose connections cannot be taken."""

    asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_spent_descriptors_do_not_make_the_server_spin(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bound = bind_socket(home, "gateway", os.environ)
    spent = OutOfDescriptors(fileno=bound.socket.detach())
    bound.socket = spent
    server = ControlServer(bound, {}, {}, asyncio.get_running_loop())
    server.start()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(bound.path))
            await asyncio.sleep(1.3)
            assert 1 <= spent.asked <= 3
        assert caplog.text.count("cannot accept") == 1
    finally:
        await asyncio.to_thread(server.stop)
