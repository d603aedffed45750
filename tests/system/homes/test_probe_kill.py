"""Killed while its probe runs: the probe ends, its generation is free, its copy goes with the next run (threats.md 2)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from nedura.update.generation.lease import is_leased
from tests.kits.site import World, world


def probes(here: World) -> list[psutil.Process]:
    """Processes that run as a probe of this world's install."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if environ.get("NEDURA_PROBE") and environ.get("NEDURA_HOME", "").startswith(
                str(here.site.paths.folder)
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(what: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.timeout(150)
def test_the_probe_of_a_killed_updater_ends_and_frees_its_generation() -> None:
    with world() as here:
        auth = here.home / "auth.json"
        auth.touch(0o600)
        auth.write_text('{"providers": {"nous": {"refresh_token": "needle-r", "access_token": "needle-a"}}}')
        before = auth.read_bytes()
        here.site.origin.commit({"README.md": "newer\n"})
        with subprocess.Popen(
            [str(here.site.launcher), "update", "--json"],
            env=here.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        ) as updater:  # fmt: skip
            assert until(lambda: probes(here) or updater.poll() is not None, 60)
            (probe,) = probes(here)
            folder = here.site.paths.folder / os.path.relpath(probe.environ()["HOME"], here.site.paths.folder)
            copied = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
            candidate = here.site.paths.generations / "000002"
            assert until(lambda: is_leased(candidate), 5)
            updater.kill()
            updater.wait()
        assert b"needle" not in copied
        assert until(lambda: not probe.is_running() or probe.status() == psutil.STATUS_ZOMBIE, 10)
        assert until(lambda: not is_leased(candidate), 5), "nobody holds what was only tried"
        assert here.current == "000001"
        assert auth.read_bytes() == before
        code, events = here.update()
        assert code == 0, events[-1]
        assert not list(here.site.paths.folder.glob(".tmp.probe.*")), "the copied state is gone"
        assert probes(here) == []
