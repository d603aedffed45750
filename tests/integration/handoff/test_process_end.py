"""A process ends while a refresh waits for somebody's lock; only a redeem that is under way is waited for."""

from __future__ import annotations

import subprocess
import sys
import time

from nedura.locks import FileLock
from tests.integration.handoff.world import World

WAITS = """
import asyncio, sys
from pathlib import Path
from nedura.signin.accounts import AccountStore
from nedura.signin.refresh import refresh_account

async def main():
    try:
        async with asyncio.timeout(0.5):
            await refresh_account(AccountStore(Path(sys.argv[1])))
    except TimeoutError:
        print("abandoned")

asyncio.run(main())
"""


def test_a_wait_for_a_lock_keeps_no_process(world: World) -> None:
    world.sign_in()  # by the clock of the test long over
    home = world.home()
    lock = FileLock(home / "auth.lock")
    assert lock.try_acquire()
    entry = world.store().path
    entry.write_text(entry.read_text().replace("access_token", "no_access_token"))
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", WAITS, str(home)],
            env={"HOME": str(world.root.parent), "NEDURA_HOME": str(world.root), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
    finally:
        lock.release()
    assert (done.stdout, done.stderr) == ("abandoned\n", "")
    assert time.monotonic() - start < 15, "the lock is waited for 20 s"
