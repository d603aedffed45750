"""What a check says must hold: its advice goes where it asked, and what it keeps for the passive notice is about what is followed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nedura.errors import RefusedError, UpdateError, UsageError
from nedura.programs import child_environment
from nedura.records import read_json
from nedura.testing.installs import Site, git
from nedura.update.notice import check_and_remember, is_due, notice_text, passive_notice
from nedura.update.source.channels import check_followed, set_channel
from nedura.update.source.check import check_for_update
from nedura.update.source.owner_checkout import read_source
from nedura.update.source.urls import parse_remote
from tests.kits.sealed import Stages


def environ() -> dict[str, str]:
    return dict(os.environ)


def test_the_advice_goes_where_the_check_asked(site: Site) -> None:
    """`nedura update` alone would have followed another branch than the one that the check had spoken of."""
    git(site.origin.folder, "tag", "v1.0.0")
    site.origin.commit({"a": "1"})
    git(site.origin.folder, "branch", "it's")
    git(site.origin.folder, "tag", "v1.1.0")

    def advice(branch: str | None = None, channel: str | None = None) -> str:
        found = check_for_update(site.home, site.product, environ(), branch=branch, channel=channel)
        return found.copy_terminal

    command = f"Update with: {site.product.command} update"
    assert advice().endswith(command)
    assert advice(channel="stable").endswith(f"{command} --channel stable")
    assert advice(branch="it's").endswith(f"{command} --branch 'it'\"'\"'s'")


async def test_what_runs_ahead_of_a_release_is_not_called_local(stages: Stages) -> None:
    site = stages.site
    git(site.origin.folder, "tag", "v1.0.0")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    told = check_for_update(site.home, site.product, environ(), channel="stable").copy_terminal
    assert told.endswith("v1.0.0 (what runs is 1 commit ahead).")


def test_a_release_tag_that_is_no_commit_is_named(site: Site) -> None:
    blob = git(site.origin.folder, "rev-parse", "HEAD:toy/value.py")
    git(site.origin.folder, "tag", "v9.0.0", blob)
    with pytest.raises(UpdateError, match=r"v9\.0\.0 is no commit at the remote") as told:
        check_for_update(site.home, site.product, environ(), channel="stable")
    assert told.value.stop_class == "fetch_failed"


def test_what_killed_checks_left_goes_with_the_next_one(site: Site) -> None:
    repo = site.paths.repo
    check_for_update(site.home, site.product, environ())
    folder = repo / "refs/nedura/checks"
    for name in ("111", "222"):
        git(repo, "update-ref", f"refs/nedura/checks/{name}", site.origin.head)
    past = time.time() - 3600
    os.utime(folder / "111", (past, past))
    check_for_update(site.home, site.product, environ())
    assert os.listdir(folder) == ["222"], "a young one may belong to a check that runs"


READ_ONLY = """
import os, sys
from nedura.testing.installs import TOY
from nedura.update.source.check import check_for_update
from pathlib import Path
print(check_for_update(Path(sys.argv[1]), TOY, dict(os.environ)).state)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="root mounts a folder read-only")
def test_a_check_needs_no_disk_of_the_install(site: Site) -> None:
    """It said "another git process holds a lock" of a read-only home."""
    site.origin.commit({"a": "1"})
    home = shlex.quote(str(site.home))
    script = f"mount --bind {home} {home} && mount -o remount,ro,bind {home} && exec {sys.executable} -c {shlex.quote(READ_ONLY)} {home}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=child_environment(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("root may mount nothing here")
    assert (done.stdout, done.returncode) == ("behind\n", 0), done.stderr


def test_a_notice_is_said_once_a_day_also_when_the_daily_check_answers_in_between(
    site: Site, tmp_path: Path
) -> None:
    site.origin.commit({"a": "1"})
    now = 1_000_000.0
    check_and_remember(site.home, site.product, environ(), now=now)
    current = str(read_json(site.home / "update_check.json")["current"])

    def said(later: float) -> str:
        return passive_notice(
            site.home, site.product, current, tmp_path / "no launcher", now=now + later, sparing=True
        )

    assert "newer version" in said(10)
    check_and_remember(site.home, site.product, environ(), now=now + 20)
    assert said(30) == ""
    assert "newer version" in said(86_500)


def test_another_channel_ends_the_notice_about_the_old_one(site: Site) -> None:
    site.origin.commit({"a": "1"})
    check_and_remember(site.home, site.product, environ())
    record = read_json(site.home / "update_check.json")
    assert notice_text(record, record["current"], "toy")
    set_channel(site.home, "stable", site.product, environ())
    kept = read_json(site.home / "update_check.json")
    assert notice_text(kept, record["current"], "toy") == ""
    assert is_due(kept, record["current"], time.time())


def test_no_channel_is_kept_for_an_install_that_somebody_else_updates(site: Site) -> None:
    """It said that the install follows the channel from the next update on, and no update will ever come."""
    with pytest.raises(RefusedError, match="nixos") as told:
        set_channel(site.home, "stable", site.product, {**environ(), site.product.env("MANAGED"): "nixos"})
    assert told.value.advice.startswith("Update it with: nix profile upgrade")
    assert not (site.home / "config.yaml").exists()


def test_an_unpacked_release_is_not_asked_about_branches() -> None:
    check_followed("zip", "main", "stable")
    check_followed("sealed", "next", "canary")
    for branch, channel in (("next", None), (None, "canary")):
        with pytest.raises(UsageError, match="no branches or channels"):
            check_followed("zip", branch, channel)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host.example/o/r?private_token=needle", "https://host.example/o/r"),
        ("https://host.example/o/r#needle", "https://host.example/o/r"),
        ("https://u:a?needle@host.example/o/r?x", "https://host.example/o/r"),
        ("http://host.example/o/r?private_token=needle", "http://host.example/o/r"),
    ],
)
def test_a_refused_address_is_shown_without_its_query(url: str, shown: str) -> None:
    """A token in it went to the plan, and with the plan into receipts."""
    with pytest.raises(RefusedError, match=f"{shown} cannot be used") as told:
        parse_remote(url)
    assert "needle" not in told.value.diagnostics()


def test_git_gets_its_protocol_in_small_letters() -> None:
    """It knows `transport 'HTTPS'` as a protocol that is not allowed."""
    assert parse_remote("HTTPS://Host.example/O/R.git").url == "https://Host.example/O/R.git"


async def test_a_remote_that_went_back_is_no_up_to_date(stages: Stages) -> None:
    """The check said "Up to date" where the update ends with exit 1."""
    site = stages.site
    old = site.origin.head
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    git(site.origin.folder, "reset", "-q", "--hard", old)
    found = check_for_update(site.home, site.product, environ())
    assert (found.state, found.commits) == ("current", 0)
    assert "older than what runs" in found.copy_terminal
    assert "--allow-downgrade" in found.copy_terminal
    assert "Up to date" not in found.copy_terminal


async def test_a_rewritten_history_is_told_by_the_check(stages: Stages) -> None:
    site = stages.site
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    git(site.origin.folder, "commit", "-q", "--amend", "-m", "another")
    found = check_for_update(site.home, site.product, environ())
    assert found.state == "behind"
    assert "The history of main was rewritten" in found.copy_terminal


@pytest.mark.parametrize(
    ("body", "told"), [("exit 1", "cannot be read by git"), ("echo broken >&2; exit 3", "git: broken")]
)
def test_a_git_that_does_not_work_is_not_called_a_broken_configuration(
    site: Site, tmp_path: Path, body: str, told: str
) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    with pytest.raises(RefusedError, match=told):
        read_source(site.checkout, str(program), environ())
