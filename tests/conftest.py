"""Hostile defaults for every test: its own HOME, no inherited settings, no stray output of the machine's owner."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kits.leaks import pytest_sessionfinish, pytest_testnodedown

__all__ = [
    "clean_environment",
    "kept_umask",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_testnodedown",
]

# A loaded machine is no finding: neither a slow example nor a slow generator fails a test.
settings.register_profile(
    "nedura",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("nedura")

# A suite started in the background of a script inherits an ignored SIGINT, and every child of a test would, too.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

_DROP_PREFIXES = ("NEDURA_", "NOUS_", "HERMES_", "GIT_", "PIP_", "UV_", "SSH_", "XDG_", "PYTHON", "NOTIFY_")
_DROP = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSLKEYLOGFILE", "INVOCATION_ID",
    "WATCHDOG_USEC", "ACCESSIBLE", "NO_COLOR", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "TMUX", "STY",
)  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a missing part fails, whatever its test says; only what root cannot see may be skipped (decision 57)."""
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith("root "):
            report.outcome, report.longrepr = "failed", f"CI lacks a part: {reason}"
    return report


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has an own HOME and sees no variable of the person or CI that runs it."""
    for name in list(os.environ):
        if name.startswith(_DROP_PREFIXES) or name in _DROP:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LANG", "C.UTF-8")
    return home


@pytest.fixture(autouse=True)
def kept_umask() -> Iterator[None]:
    """A test that leaves another umask behind fails itself, not the next one on its worker."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    after = os.umask(before)
    assert after == before, f"the test left umask {after:03o}"
