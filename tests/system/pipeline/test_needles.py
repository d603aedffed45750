"""The needle test of threats.md 6 over whole flows: every secret the portal ever issued, looked for in all that the program leaves."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import attrs
import psutil
import pytest

from nedura.signin.accounts import AccountStore
from nedura.testing.portal import PortalControl, portal_process
from tests.crash.host import Host
from tests.crash.plan import Kill
from tests.crash.strike import strike
from tests.kits.site import World, world

PLANTED = "bot-needle-93c1f07ad2"
STORES = {"auth.json", "nous_auth.json", ".env", "handoff.json"}
"""Files whose purpose is to hold secrets; a snapshot keeps copies of them under the same names."""


def forms(needle: str) -> list[bytes]:
    """A secret as it is, Base64 at each alignment, and as URL and JSON writers spell it."""
    raw = needle.encode()
    found = [raw, quote(needle, safe="").encode(), json.dumps(needle)[1:-1].encode()]
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw)
        found.append(text[4 if shift else 0 : len(text) - 4])
    return found


def holds(data: bytes, needles: list[str]) -> list[str]:
    """Needles in some bytes."""
    return [needle for needle in needles if any(form in data for form in forms(needle))]


@attrs.define
class Watch:
    """Command lines and environments of every process of the world, sampled while things happen."""

    world: World
    seen: set[bytes] = attrs.field(factory=set)
    environs: set[bytes] = attrs.field(factory=set)
    _stop: threading.Event = attrs.field(factory=threading.Event)

    def _sample(self) -> None:
        mark = str(self.world.folder).encode()
        while not self._stop.wait(0.02):
            for pid in psutil.pids():
                try:
                    argv = Path(f"/proc/{pid}/cmdline").read_bytes()
                    environ = Path(f"/proc/{pid}/environ").read_bytes()
                except OSError:
                    continue
                if mark in argv or mark in environ:
                    self.seen.add(argv)
                    self.environs.add(environ)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def guest_of(here: World, portal: PortalControl) -> str:
    """A free tier on disk, as a first start leaves it."""
    guest = portal.guest("gmail", "notion:reconnect")
    entry = {
        "auth_method": "anonymous",
        "anon_token": guest["token"],
        "user_id": guest["user_id"],
        "org_id": guest["org_id"],
        "portal_base_url": portal.url,
    }
    AccountStore(here.home, environ=here.environ).save_guest(entry, renewal=False, now=time.time())
    return str(guest["token"])


def sign_in(here: World, portal: PortalControl, outputs: list[bytes]) -> None:
    """`auth upgrade` with a person who approves, and with one who does not."""
    for action, code in (("decline", 1), ("approve", 0)):
        process = subprocess.Popen(
            [str(here.site.launcher), "auth", "upgrade", "--no-browser", "--json"],
            env=here.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        portal.decide(portal.wait_for_code(30), action)
        said, _ = process.communicate(timeout=60)
        outputs.append(said)
        assert process.returncode == code, said


def flows(here: World, portal: PortalControl) -> list[bytes]:
    """A sign-in, its failures, an update that is killed, the launch after it, the update after that, and everything that reports."""
    outputs: list[bytes] = []

    def run(*words: str, code: int | None = 0) -> None:
        done = here.command(*words)
        outputs.append((done.stdout + done.stderr).encode())
        assert code is None or done.returncode == code, done.stderr

    sign_in(here, portal, outputs)
    secrets = portal.issued()
    for status in (401, 500):
        portal.plant(route="*", status=status, times=-1, error=secrets[-1], text=" ".join(secrets))
        run("auth", "status", "--json", code=None)
        run("model", "--json", "--debug", code=None)
        run("auth", "upgrade", "--json", "--debug", "--no-browser", code=None)
        portal.clear_faults()
    here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
    outside = here.folder / "outside"
    outside.mkdir()
    kill = Kill(seed=0, how="stage", stage="first_member")
    assert strike(Host(here, outside), kill).reached, "the update was killed behind its commit point"
    run("fleet", "status")
    run("update", "--deadline", "60")
    run("auth", "status", "--json")
    run("logs", "update", "--json")
    run("fleet", "status", "--json")
    run("update", "--plan", "--json")
    run("debug", "bundle", "--json")
    run("auth", "logout", "nous", "--revoke", "--json")
    return outputs


@pytest.mark.timeout(150)
def test_no_secret_leaves_its_store(tmp_path: Path) -> None:
    with world() as here, portal_process(tmp_path, "--interval", "1") as portal:
        here.extra = {"NEDURA_PORTAL_BASE_URL": portal.url}
        guest = guest_of(here, portal)
        (here.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={PLANTED}\n")
        (here.home / ".env").chmod(0o600)
        assert holds((here.home / "auth.json").read_bytes(), [guest]), (
            "the trap works: the store does hold it"
        )
        here.start("default", "alpha")
        watch = Watch(here)
        with watch.running():
            outputs = flows(here, portal)
        needles = [*portal.issued(), guest, PLANTED]
        assert len(needles) >= 6, "guest, device code, access and refresh tokens"
        found = [text for text in outputs if holds(text, needles)]
        assert not found, found[0][-600:]
        argv = b"\n".join(watch.seen)
        assert b"bootstrap.py" in argv, "the sampling sees the children of the update"
        assert not holds(argv, needles)
        assert not holds(b"\n".join(watch.environs), needles)
        files = [path for path in here.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        kept = {path for path in files if path.name in STORES}
        assert any(holds(path.read_bytes(), needles) for path in kept), "the trap works on files"
        leaks = [str(path) for path in files if path not in kept and holds(path.read_bytes(), needles)]
        assert leaks == []
        assert [path for path in kept if path.stat().st_mode & 0o077] == []
        bundles = list((here.home / "debug").glob("*.zip"))
        assert bundles
        for bundle in bundles:
            with zipfile.ZipFile(bundle) as archive:
                assert not holds(b"\n".join(archive.read(name) for name in archive.namelist()), needles)
