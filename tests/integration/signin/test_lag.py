"""The event loop of the host is never kept for more than 20 ms by a sign-in."""

from __future__ import annotations

from pathlib import Path

from bench.signin_latency import one
from nedura.testing.portal import portal_process


async def test_a_sign_in_keeps_the_loop_for_less_than_20_ms(tmp_path: Path) -> None:
    """Waiting for a processor that other programs have is not counted; the best of five runs is free of the rest of the noise."""
    worst = []
    with portal_process(tmp_path, "--interval", "1") as portal:
        for number in range(5):
            home = tmp_path / f"home{number}"
            home.mkdir(mode=0o700)
            _wait, lag = await one(portal, home, 0.1)
            worst.append(lag)
            if lag < 0.02:
                break
    assert min(worst) < 0.02, worst
