"""The debug bundle holds no secret in any form, has modes 0600, and says what it holds."""

from __future__ import annotations

import base64
import json
import os
import stat
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest

from nedura.bundle import collect_bundle, known_secrets, mask, write_bundle

NEEDLES = {
    "refresh": "rt-NEEDLE-refresh-0001",
    "access": "at-NEEDLE-access-0002",
    "bot": "NEEDLE.bot/plus+sign=0003",
    "url": "ghp_NEEDLE_url_0004",
    "key": "sk-NEEDLE-key-0005",
    "shared": "anon_NEEDLEshared0006",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    install = home / "installs/0123456789ab"
    install.mkdir(parents=True)
    (home / "shared").mkdir()
    alpha = home / "profiles/alpha"
    alpha.mkdir(parents=True)
    (alpha / "auth.json").write_text(
        json.dumps({"nous": {"refresh_token": NEEDLES["refresh"], "access_token": NEEDLES["access"]}})
    )
    (home / ".env").write_text(f"TELEGRAM={NEEDLES['bot']}\n")
    (home / "config.yaml").write_text(f"model:\n  api_key: {NEEDLES['key']}\n")
    (home / "shared/nous.json").write_text(json.dumps({"credential_token": NEEDLES["shared"]}))
    remote = f"http://user:{NEEDLES['url']}@127.0.0.1:1/x.git"
    (install / "install.json").write_text(json.dumps({"remote_url": remote, "source": "/x"}))
    receipts = home / "logs/update_receipts"
    receipts.mkdir(parents=True)
    said = " ".join(
        [*NEEDLES.values(), *(quote(n, safe="") for n in NEEDLES.values()),
         *(base64.b64encode(b"xy" + n.encode() + b"z").decode() for n in NEEDLES.values())]
    )  # fmt: skip
    receipt = {"update_id": "r", "outcome": "failed", "stop_reason": said, "argv": [said]}
    (receipts / "update_20260101_000000_1_r.json").write_text(json.dumps(receipt))
    (home / "logs/update.log").write_text(f"fatal: could not read from {remote}: {said}\n")
    (home / "gateway_state.json").write_text(json.dumps({"pid": 1, "exit_reason": said}))
    return home


def forms(needle: str) -> list[str]:
    return [needle, quote(needle, safe=""), base64.b64encode(needle.encode()).decode()[:-4], needle.lower()]


def test_no_needle_is_in_the_bundle(home: Path, tmp_path: Path) -> None:
    made = collect_bundle(
        home, ["default", "alpha"], now=0.0, reports={"plan.json": lambda: {"remote": NEEDLES["url"]}}
    )
    path = tmp_path / "out/bundle.zip"
    before = os.umask(0)
    try:
        write_bundle(made, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        everything = "\n".join(archive.read(name).decode() for name in names)
        assert all((info.external_attr >> 16) & 0o777 == 0o600 for info in archive.infolist())
    assert {"about.json", "update.log", "plan.json", "installs/0123456789ab/install.json"} <= set(names)
    assert "receipts/update_20260101_000000_1_r.json" in names
    for needle in NEEDLES.values():
        for form in forms(needle):
            assert form.lower() not in everything.lower(), f"{form} is in the bundle"
    assert "could not read from" in everything, "what is no secret stays"


def test_the_trap_works_on_the_unguarded_text(home: Path) -> None:
    text = (home / "logs/update.log").read_text()
    assert all(needle in text for needle in NEEDLES.values())


def test_every_store_is_known(home: Path) -> None:
    assert set(NEEDLES.values()) <= known_secrets(home, [home, home / "profiles/alpha"])


def test_never_on_the_list(home: Path) -> None:
    made = collect_bundle(home, ["default", "alpha"], now=0.0)
    assert not any(
        part in item.name for item in made.items for part in (".env", "auth", "config.yaml", "shared")
    )


def test_a_report_that_fails_is_named_and_redacted(home: Path) -> None:
    def bad() -> object:
        raise OSError(f"no {NEEDLES['refresh']}")

    made = collect_bundle(home, ["default", "alpha"], now=0.0, reports={"plan.json": bad})
    assert "OSError" in made.left_out["plan.json"]
    assert NEEDLES["refresh"] not in made.left_out["plan.json"]


def test_a_link_in_the_place_of_a_log_is_not_followed(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    (home / "logs/update.log").unlink()
    (home / "logs/update.log").symlink_to(secret)
    made = collect_bundle(home, ["default"], now=0.0)
    assert all("private" not in item.text for item in made.items)


def test_masking_is_case_blind_and_keeps_short_words() -> None:
    assert mask("ABCdefGHI and abc", ["abcDEFghi"]) == "[redacted] and abc"
