"""Validation on copied state: no live secret, no portal, everything removed (threats.md 2, decision 33)."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import attrs
import pytest

from nedura.errors import ConfigError, UpdateError
from nedura.product import NEDURA
from nedura.testing.installs import TOY, TOY_FILES, Site, make_site, own_files
from nedura.update.validation.probe_state import blanked, copy_state
from tests.kits.sealed import Stages

SECRETS = {
    "auth.json": '{"providers": {"nous": {"access_token": "needle-a", "refresh_token": "needle-b"}}}',
    "guest_handoff.json": '{"token": "anon_needle"}',
    ".env": "TELEGRAM_BOT_TOKEN=needle-c\n",
    "pairing/list.json": '{"code": "needle-d"}',
    "gateway_state.json": '{"pid": 1}',
}
CONFIG = "model:\n  default: hermes\ntelegram:\n  bot_token: needle-e\nkeys:\n  - api_key: needle-f\n"

SPY = """
import json, os, pathlib, sys
home = pathlib.Path(os.environ["TOY_HOME"])
seen = {{
    "environ": dict(os.environ),
    "files": {{str(p.relative_to(home)): p.read_bytes().decode("latin-1") for p in home.rglob("*") if p.is_file()}},
    "mode": home.stat().st_mode & 0o777, "cwd": os.getcwd(), "prefix": sys.prefix,
}}
pathlib.Path({mark!r}).write_text(json.dumps(seen))
sys.exit("this spy never answers")
"""


def seed(home: Path) -> None:
    for name, text in SECRETS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "config.yaml").write_text(CONFIG)
    live = sqlite3.connect(home / "state.db")
    live.execute("CREATE TABLE t (x)")
    live.execute("INSERT INTO t VALUES (7)")
    live.commit()
    live.close()


def leftovers(site: Site) -> list[str]:
    return [name for name in os.listdir(site.paths.folder) if name.startswith(".tmp")]


async def test_the_probe_sees_copied_state_without_any_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "seen.json"
    product = attrs.evolve(TOY, gateway_modules=("toy.gateway",), env_prefix="TOY")
    site = make_site(tmp_path, TOY_FILES, product=product)
    seed(site.home)
    before = {name: (site.home / name).read_bytes() for name in SECRETS}
    monkeypatch.setenv("NEEDLE_TOKEN", "needle-g")
    site.origin.commit({"toy/gateway.py": SPY.format(mark=str(mark))})
    stages = Stages(site)
    with pytest.raises(UpdateError, match="never answers") as caught:
        await stages.update()
    assert caught.value.stop_class == "probe"
    seen = json.loads(mark.read_text())
    assert "needle" not in json.dumps(seen)
    assert set(seen["files"]) >= {"config.yaml", "state.db"}
    assert not set(SECRETS) & set(seen["files"])
    assert "hermes" in seen["files"]["config.yaml"]
    assert seen["mode"] == 0o700
    assert seen["environ"]["TOY_PORTAL_BASE_URL"] == "http://127.0.0.1:9"
    assert {name: (site.home / name).read_bytes() for name in SECRETS} == before
    assert leftovers(site) == []
    assert site.paths.current.readlink() == Path("generations/000001")


async def test_what_a_killed_probe_left_is_swept_by_the_next_run(stages: Stages) -> None:
    left = stages.site.paths.folder / ".tmp.probe.abcd/home"
    left.mkdir(parents=True)
    (left / "state.db").write_text("x")
    await stages.prepare()
    assert leftovers(stages.site) == []


def test_blanking_keeps_what_is_no_secret() -> None:
    value = {
        "model": {"default": "x", "api_key": "s"},
        "list": [{"token": "s", "port": 3}],
        "password_min": 8,
    }
    assert blanked(value) == {
        "model": {"default": "x", "api_key": ""},
        "list": [{"token": "", "port": 3}],
        "password_min": 8,
    }


def test_a_copy_is_consistent_and_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    seed(home)
    live = sqlite3.connect(home / "state.db", isolation_level=None)
    try:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("INSERT INTO t VALUES (8)")
        assert set(copy_state(home, tmp_path / "copy").names) == {"state.db", "config.yaml"}
    finally:
        live.close()
    copied = sqlite3.connect(tmp_path / "copy/state.db")
    assert copied.execute("SELECT sum(x) FROM t").fetchone() == (15,)
    copied.close()
    assert (tmp_path / "copy/state.db").stat().st_mode & 0o777 == 0o600


async def test_a_real_gateway_is_probed_on_a_real_tree(tmp_path: Path) -> None:
    stages = Stages(make_site(tmp_path, "own", product=NEDURA))
    site = stages.site
    seed(site.home)
    before = {name: (site.home / name).read_bytes() for name in SECRETS}
    site.origin.commit({"nedura/new.py": "NEW = 1\n"})
    await stages.update()
    told = {event.name: event.detail for event in stages.told("step")}
    assert told["probe"].startswith("gateway of generation 000002 answered")
    assert told["rehearsal"] == "1 home"
    assert leftovers(site) == []
    assert {name: (site.home / name).read_bytes() for name in SECRETS} == before


async def test_a_version_that_cannot_open_the_state_is_refused_before_anything_stops(tmp_path: Path) -> None:
    stages = Stages(make_site(tmp_path, "own", product=NEDURA))
    site = stages.site
    seed(site.home)
    name = "nedura/update/validation/rehearse.py"
    source = own_files()[name]
    assert isinstance(source, bytes)
    answer = b"sys.stdout.write(json.dumps({home: 'state.db is too old' for home in sys.argv[1:]}))"
    bad = source.replace(b"raise SystemExit(main(sys.argv[1:]))", answer)
    assert bad != source
    site.origin.commit({name: bad})
    with pytest.raises(
        UpdateError, match=r"cannot open the state of profile default: state\.db is too old"
    ) as caught:
        await stages.update(probe=False)
    assert caught.value.stop_class == "rehearsal"
    assert leftovers(site) == []


async def test_a_config_that_cannot_be_read_is_named_before_anything_is_fetched(stages: Stages) -> None:
    """Which channel is meant stands in it; guessing one could move a stable install to the tip of a branch."""
    (stages.site.home / "config.yaml").write_text("a: [unclosed\n")
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        await stages.prepare()
    assert stages.told("step") == []
