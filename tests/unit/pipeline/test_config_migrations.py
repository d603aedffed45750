"""Migrations of config.yaml: only adding, in order, once, and nothing else of the file moves."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.config import read_config
from nedura.config_migrations import (
    MIGRATIONS,
    VERSION_KEY,
    Migration,
    migrate,
    migrate_config,
    pending,
)
from nedura.errors import ConfigError

TEXT = "# mine\nmodel:\n  default: x/y   # the good one\nodd: [1, 2]\n"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


def adding(version: int, key: str, value: Any) -> Migration:
    return Migration(version=version, name=key, change=lambda content: content.setdefault(key, value))


STEPS = (adding(1, "one", 1), adding(2, "two", {"deep": True}))


def test_the_shipped_ones_are_numbered_without_gaps() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


@given(st.dictionaries(st.text(max_size=4).filter(lambda key: key != VERSION_KEY), values, max_size=4))
def test_whatever_stood_there_still_stands_and_a_second_time_changes_nothing(content: dict[str, Any]) -> None:
    before = dict(content)
    migrate(content, STEPS)
    assert {key: content[key] for key in before} == before
    after = dict(content)
    assert migrate(content, STEPS) == ()
    assert content == after
    assert content[VERSION_KEY] == 2


@pytest.mark.parametrize(("version", "names"), [(0, ["one", "two"]), (1, ["two"]), (2, []), (9, [])])
def test_only_what_is_missing_is_applied_in_order(version: int, names: list[str]) -> None:
    assert [step.name for step in pending({VERSION_KEY: version}, STEPS)] == names


@pytest.mark.parametrize("version", ["2", -1, True, 1.5, [1]])
def test_an_unusable_version_is_said(version: object) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        pending({VERSION_KEY: version}, STEPS)


def drops(content: MutableMapping[str, Any]) -> None:
    content.pop("model", None)


def changes(content: MutableMapping[str, Any]) -> None:
    content["model"]["default"] = "other"


@pytest.mark.parametrize(("change", "what"), [(drops, "model"), (changes, "model.default")])
def test_a_migration_that_takes_something_away_leaves_the_file_alone(
    tmp_path: Path, change: Any, what: str
) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    with pytest.raises(ConfigError, match=f"would change {what};"):
        migrate_config(tmp_path, (Migration(version=1, name="bad", change=change),))
    assert (tmp_path / "config.yaml").read_text() == TEXT


def test_comments_order_and_unknown_keys_stay(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    assert migrate_config(tmp_path, STEPS) == ("one", "two")
    text = (tmp_path / "config.yaml").read_text()
    assert text.startswith(TEXT)
    assert read_config(tmp_path).get("two.deep") is True
    stamp = (tmp_path / "config.yaml").stat()
    assert migrate_config(tmp_path, STEPS) == ()
    assert (tmp_path / "config.yaml").stat().st_ino == stamp.st_ino, "a current file is not written again"


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n"])
def test_a_missing_or_empty_file_stays_so(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert migrate_config(tmp_path, STEPS) == ()
    assert (tmp_path / "config.yaml").exists() == (text is not None)
