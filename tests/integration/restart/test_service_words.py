"""Exit codes of the service verbs, and what the fleet says about managers that are not there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from nedura.commands import build_parser
from nedura.errors import UsageError
from nedura.fleet import FleetStatus, ServiceChanged, ServiceNote, list_services
from nedura.installs import CodeIdentity
from nedura_cli.gateway import run_verb

STARTED = ServiceChanged(name="nedura-gateway.service", scope="user", change="started")
LINGER = ServiceNote(text="The gateway may stop when u logs out.")
FAILED = ServiceNote(text="nedura-gateway-a.service did not start.", failed=True)


class Silent:
    """An output nobody reads."""

    def event(self, event: Any) -> None:
        """Drop it."""

    def line(self, text: str) -> None:
        """Drop it."""


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ((), 0),
        ((STARTED,), 0),
        ((STARTED, LINGER), 0),
        ((LINGER,), 1),
        ((STARTED, FAILED), 1),
        ((FAILED, STARTED), 1),
    ],
)
def test_one_service_that_failed_among_others_is_no_success(events: tuple[Any, ...], code: int) -> None:
    async def stream() -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    assert run_verb(stream(), Silent()) == code  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0", "-3", "x", "", "1.5", "²"])
def test_nobody_at_a_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        build_parser().parse_args(["gateway", "restart", f"--width={text}"])


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Failed to connect to bus: No medium found' >&2; exit 1", "not here"),
        ("echo 'Access denied.' >&2; exit 4", "The systemd user manager refuses: Access denied"),
    ],
)
async def test_a_manager_that_is_not_there_takes_two_words_of_a_line(
    tmp_path: Path, script: str, words: str
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    listing = await list_services(environ={"PATH": f"{tmp_path}:/bin:/usr/bin"}, platform="linux")
    assert next((probe.what, probe.skipped) for probe in listing.probes) == ("systemd (user)", words)
    line = FleetStatus(expected=CodeIdentity(), probes=listing.probes).copy_terminal.splitlines()[-1]
    assert f"(systemd (user): {words}, systemd (system): " in line
    assert ".," not in line
