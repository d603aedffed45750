"""Ours or not: by home and install (decision 38)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.scope import HomeKey, Scope, home_from_environ, home_key, homes_of, same_home

MINE, THEIRS = "a" * 12, "b" * 12
HOME = HomeKey("/h/.nedura", (1, 1))
SCOPE = Scope(((Path("/h/.nedura"), HOME),), MINE)


@pytest.mark.parametrize(
    ("key", "install", "options", "reason"),
    [
        (HOME, MINE, {}, None),
        (HomeKey("/other/spelling", (1, 1)), MINE, {}, None),
        (HOME, THEIRS, {}, "another install"),
        (HOME, "", {}, "another install"),
        (HOME, "", {"our_unit": True}, None),
        (HOME, "", {"pending": True}, None),
        (None, MINE, {}, "home unreadable"),
        (HomeKey("/elsewhere"), MINE, {}, "another home"),
        (HomeKey("/elsewhere"), "", {"our_entry": False}, "another product"),
        (HOME, MINE, {"our_entry": False}, "another product"),
    ],
)
def test_judgement(key: HomeKey | None, install: str, options: dict[str, bool], reason: str | None) -> None:
    assert SCOPE.foreign_reason(key, install, **options) == reason


@given(st.text(max_size=12), st.booleans(), st.booleans())
def test_another_home_is_never_ours(install: str, our_unit: bool, pending: bool) -> None:
    assert (
        SCOPE.foreign_reason(HomeKey("/elsewhere", (9, 9)), install, our_unit=our_unit, pending=pending)
        is not None
    )


def test_spellings_of_one_home(tmp_path: Path) -> None:
    real = tmp_path / "data"
    real.mkdir()
    link = tmp_path / ".nedura"
    link.symlink_to(real)
    spellings = [str(link), f"{link}/", f"{real}/../.nedura", str(real)]
    keys = [home_key(text) for text in spellings]
    assert all(same_home(keys[0], key) for key in keys)
    assert not same_home(keys[0], home_key(tmp_path))


def test_homes_are_the_root_and_its_live_profiles(tmp_path: Path) -> None:
    for name in ("b", "a", "Bad Name", ".x.staging-1", "gone", ".deleted/gone"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    (tmp_path / "profiles" / "file").write_text("")
    assert [home.name for home in homes_of(tmp_path)] == [tmp_path.name, "a", "b"]
    outside = tmp_path / "outside"
    outside.mkdir()
    assert homes_of(tmp_path, outside, tmp_path / "profiles" / "a")[-1] == outside


def test_home_from_environ() -> None:
    assert home_from_environ({"NEDURA_HOME": "/x"}) == "/x"
    assert home_from_environ({"HOME": "/h"}) == "/h/.nedura"
    assert home_from_environ({}) is None
    assert home_from_environ(None) is None
