"""The maintenance nets, row by row."""

from __future__ import annotations

import codecs
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from nedura.update.events_snapshot import NetRestored
from nedura.update.state.nets import run_nets
from nedura.update.state.restore_rules import count_jobs, lost_settings
from tests.integration.snapshot.homes import make_database, rows, snap


async def nets(*profiles: tuple[str, Path, str]) -> list[NetRestored]:
    homes = [(name, home) for name, home, _ in profiles]
    async with aclosing(run_nets(homes, {name: snapshot for name, _, snapshot in profiles})) as events:
        return [event async for event in events]


def jobs(home: Path, content: object) -> None:
    (home / "cron").mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (home / "cron/jobs.json").write_text(text)


@pytest.mark.parametrize(
    ("live", "restored"),
    [
        ({"jobs": []}, True),
        ({"jobs": [1, 2]}, True),
        ([1], True),
        ({"jobs": [1, 2, 3]}, False),
        ({"jobs": [1, 2, 3, 4]}, False),
        ("{", False),
        ({"other": 1}, False),
        ("null", False),
    ],
)
async def test_cron_jobs_come_back_only_when_fewer_are_left(
    tmp_path: Path, live: object, restored: bool
) -> None:
    jobs(tmp_path, {"jobs": [1, 2, 3]})
    name = snap(tmp_path)
    jobs(tmp_path, live)
    before = (tmp_path / "cron/jobs.json").read_text()
    events = await nets(("default", tmp_path, name))
    assert [(event.net, event.ok) for event in events] == ([("cron", True)] if restored else [])
    after = (tmp_path / "cron/jobs.json").read_text()
    assert (json.loads(after) == {"jobs": [1, 2, 3]}) if restored else after == before


async def test_a_missing_jobs_file_is_left_alone(tmp_path: Path) -> None:
    jobs(tmp_path, [1, 2, 3])
    name = snap(tmp_path)
    (tmp_path / "cron/jobs.json").unlink()
    assert await nets(("default", tmp_path, name)) == []
    assert not (tmp_path / "cron/jobs.json").exists()


async def test_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "cron").mkdir()
    (tmp_path / "cron/jobs.json").write_bytes(codecs.BOM_UTF8 + b'{"jobs": [1, 2]}')
    name = snap(tmp_path)
    (tmp_path / "cron/jobs.json").write_bytes(codecs.BOM_UTF8 + b"[]")
    events = await nets(("default", tmp_path, name))
    assert "0 of 2" in events[0].detail
    assert name in events[0].detail


async def test_each_profile_uses_its_own_snapshot(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    jobs(a, [1, 2, 3])
    jobs(b, [1])
    names = snap(a), snap(b)
    jobs(a, [])
    jobs(b, [1])
    events = await nets(("a", a, names[0]), ("b", b, names[1]))
    assert [event.profile for event in events] == ["a"]
    jobs(a, [])
    assert await nets(("a", a, "")) == [], "without a snapshot of this run there is nothing to compare"


async def test_only_guarded_settings_come_back(tmp_path: Path) -> None:
    saved = "# mine\nmodel:\n  provider: nous\n  default: big\n  temperature: 1\nmoa:\n  experts: [a, b]\ndisplay:\n  skin: ares\n"
    (tmp_path / "config.yaml").write_text(saved)
    name = snap(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "# new\nmodel:\n  provider: other\n  temperature: 2\ndisplay:\n  skin: mono\nadded: yes\n"
    )
    (event,) = await nets(("default", tmp_path, name))
    assert event.net == "config"
    assert event.ok
    from nedura.config import read_config

    config = read_config(tmp_path)
    assert config.get("model.provider") == "nous"
    assert config.get("model.default") == "big"
    assert config.get("moa") == {"experts": ["a", "b"]}
    assert config.get("model.temperature") == 2
    assert config.get("display.skin") == "mono"
    assert "# new" in (tmp_path / "config.yaml").read_text()
    assert await nets(("default", tmp_path, name)) == []


@pytest.mark.parametrize(
    ("saved", "live", "lost"),
    [
        ({}, {"model": {"provider": "x"}}, {}),
        ({"model": {"provider": ""}}, {}, {}),
        ({"model": {"provider": None}}, {}, {}),
        ({"model": {"base_url": "u"}}, {"model": {"base_url": "u"}}, {}),
        (
            {"model": {"base_url": "u", "api_key": "k"}},
            {"model": None},
            {"model.base_url": "u", "model.api_key": "k"},
        ),
        ({"model": "text"}, {}, {}),
        ({"moa": {}}, {"moa": {"a": 1}}, {}),
        ({"moa": {"a": 1}}, {"moa": {"a": 2, "b": 3}}, {"moa": {"a": 1}}),
    ],
)
def test_what_counts_as_lost(
    saved: dict[str, object], live: dict[str, object], lost: dict[str, object]
) -> None:
    assert lost_settings(saved, live) == lost


@pytest.mark.parametrize(
    ("content", "count"),
    [({"jobs": [1]}, 1), ([1, 2], 2), ({}, None), ("x", None), (None, None), ({"jobs": {}}, None)],
)
def test_shapes_of_cron_files(content: object, count: int | None) -> None:
    assert count_jobs(content) == count


async def test_a_config_file_that_is_gone_comes_back_whole(tmp_path: Path) -> None:
    """With the guarded keys alone it would look like one, and everything else would be lost."""
    text = "model:\n  default: x\ngateway:\n  operators: [a:b]  # mine\n"
    (tmp_path / "config.yaml").write_text(text)
    snapshot = snap(tmp_path)
    (tmp_path / "config.yaml").unlink()
    told = [event async for event in run_nets([("default", tmp_path)], {"default": snapshot})]
    assert [(event.net, event.ok) for event in told] == [("config", True)]
    assert (tmp_path / "config.yaml").read_text() == text


async def test_a_broken_config_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  provider: nous\n")
    jobs(tmp_path, [1, 2])
    name = snap(tmp_path)
    (tmp_path / "config.yaml").write_text("model: [")
    jobs(tmp_path, [])
    events = {event.net: event for event in await nets(("default", tmp_path, name))}
    assert events["cron"].ok
    assert not events["config"].ok
    assert "line" in events["config"].detail


async def test_a_damaged_state_database_comes_back_from_the_newest_whole_copy(tmp_path: Path) -> None:
    make_database(tmp_path / "state.db", 40)
    old = snap(tmp_path, 1_000_000_000, "manual")
    make_database(tmp_path / "other.db", 41)
    (tmp_path / "other.db").replace(tmp_path / "state.db")
    new = snap(tmp_path, 1_000_000_100)
    assert await nets(("default", tmp_path, new)) == [], "a whole one is left alone"
    copy = tmp_path / "state-snapshots" / new / "state.db"
    data = bytearray(copy.read_bytes())
    data[-10] ^= 1
    copy.write_bytes(data)
    broken = bytes(50_000)
    (tmp_path / "state.db").write_bytes(broken)
    Path(f"{tmp_path / 'state.db'}-wal").write_bytes(b"stale")
    (event,) = await nets(("default", tmp_path, new))
    assert event.ok
    assert old in event.detail, "the newer copy does not pass"
    assert rows(tmp_path / "state.db") == 40
    (aside,) = [path for path in tmp_path.glob("state.db.corrupt-*") if not path.name.endswith("-wal")]
    assert aside.read_bytes() == broken
    assert aside.name in event.detail


async def test_damage_without_a_whole_copy_is_told_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(bytes(5000))
    (event,) = await nets(("default", tmp_path, ""))
    assert not event.ok
    assert "No snapshot" in event.detail
    assert (tmp_path / "state.db").read_bytes() == bytes(5000)


async def test_a_held_damaged_database_is_refused(tmp_path: Path) -> None:
    make_database(tmp_path / "state.db")
    name = snap(tmp_path)
    (tmp_path / "state.db").write_bytes(bytes(5000))
    with (tmp_path / "state.db").open("rb"):
        (event,) = await nets(("default", tmp_path, name))
    assert not event.ok
    assert "open in process" in event.detail
    assert (tmp_path / "state.db").read_bytes() == bytes(5000)


async def test_a_linked_database_is_mended_where_it_really_is(tmp_path: Path) -> None:
    home, real = tmp_path / "h", make_database(tmp_path / "elsewhere/real.db", 40)
    home.mkdir()
    (home / "state.db").symlink_to(real)
    name = snap(home)
    real.write_bytes(bytes(50_000))
    Path(f"{real}-wal").write_bytes(b"stale")
    (event,) = await nets(("default", home, name))
    assert event.ok, event.detail
    assert (home / "state.db").is_symlink()
    assert rows(real) == 40
    assert not Path(f"{real}-wal").exists()
    assert list(real.parent.glob("real.db.corrupt-*-wal"))
