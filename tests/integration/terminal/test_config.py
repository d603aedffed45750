"""config.yaml: reads, errors that name a place, hostile YAML, and the write that keeps what a person wrote."""

from __future__ import annotations

import multiprocessing
import stat
import time
from collections.abc import MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nedura.config import Config, edit_config, read_config, set_value, unset_value
from nedura.errors import ConfigError

COMMENTED = """\
# my settings
model:
  default: "hermes-4"   # the good one
  base_url: 'https://example.com/v1'
future:
  unknown_key: [1, 2]   # a newer release wrote this
list:
  - a
  - b
"""


def write(home: Path, text: str | bytes) -> Path:
    path = home / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_missing_and_empty_files_are_an_empty_config(tmp_path: Path) -> None:
    assert read_config(tmp_path).get("model.default", "none") == "none"
    write(tmp_path, "# only a comment\n")
    assert read_config(tmp_path).get("model") is None


def test_reads_dotted_keys_as_ordinary_data(tmp_path: Path) -> None:
    write(tmp_path, COMMENTED)
    config = read_config(tmp_path)
    assert config.get("model.default") == "hermes-4"
    assert type(config.get("model.default")) is str
    assert config.get("future") == {"unknown_key": [1, 2]}
    assert type(config.get("future")) is dict
    assert config.get("model.default.deeper", 7) == 7


def test_an_edit_keeps_comments_order_quotes_and_unknown_keys(tmp_path: Path) -> None:
    path = write(tmp_path, COMMENTED)
    edit_config(tmp_path, lambda content: set_value(content, "model.default", "other"))
    assert path.read_text() == COMMENTED.replace('"hermes-4"   #', '"other"      #')
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", [COMMENTED, COMMENTED.replace("\n", "\r\n"), "list:\n- a\n- b\n", "# note\n"]
)
def test_an_edit_that_changes_nothing_leaves_every_byte(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    edit_config(tmp_path, lambda content: None)
    assert path.read_bytes() == text.encode()


def test_the_first_key_of_a_comment_only_file_keeps_the_comment(tmp_path: Path) -> None:
    path = write(tmp_path, "# my notes\n# second\n")
    edit_config(tmp_path, lambda content: set_value(content, "display.skin", "ares"))
    assert path.read_text().startswith("# my notes\n# second\n")
    assert read_config(tmp_path).get("display.skin") == "ares"


def test_set_and_unset_make_and_remove_sections(tmp_path: Path) -> None:
    edit_config(tmp_path, lambda content: set_value(content, "a.b.c", [1, True, None]))
    assert read_config(tmp_path).get("a") == {"b": {"c": [1, True, None]}}

    def drop(content: MutableMapping[str, Any]) -> None:
        assert unset_value(content, "a.b.c")
        assert not unset_value(content, "a.b.c")
        assert not unset_value(content, "x.y")

    edit_config(tmp_path, drop)
    assert read_config(tmp_path).get("a") == {"b": {}}


def test_setting_below_a_value_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "model: x\n")
    with pytest.raises(ConfigError, match="not a section"):
        edit_config(tmp_path, lambda content: set_value(content, "model.default", "y"))
    assert path.read_text() == "model: x\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3, column 2"),
        ("a: 1\na: 2\n", "line 2, column 1"),
        ("a: 'x\n", "line 2, column 1"),
        ("\tb: 1\n", "line 1, column 1"),
        ("- 1\n- 2\n", "line 1, column 1"),
        (b"a: \xff\n", "line 1"),
        (b"a: 1\nb: \x00\n", "config.yaml"),
        ("a: !!python/object/apply:os.system ['id']\n", "line 1, column 4"),
        ("a: !custom 1\n", "line 1, column 4"),
        ("? [a, b]\n: {c: 2024-99-99}\n", "config.yaml"),
        ("a: &a [*a]\n", "line 1"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, text: str | bytes, place: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert place in caught.value.message
    assert "\n" not in caught.value.message
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        edit_config(tmp_path, lambda content: set_value(content, "x", 1))
    assert path.read_bytes() == before


def _laughs() -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _laughs(),
        "[" * 5000,
        "a: " + "[" * 100 + "]" * 100,
        "x" * (1024 * 1024 + 1),
        "a: &x " + "y" * 99 + "\n" * 9 + "*",
    ],
    ids=["laughs", "depth-open", "depth", "size", "dangling"],
)
def test_bombs_are_named_errors_within_a_second(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    start = time.monotonic()
    with pytest.raises(ConfigError):
        read_config(tmp_path)
    assert time.monotonic() - start < 1


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target.yaml"
    target.write_text("a: 1\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").symlink_to(target)
    with pytest.raises(ConfigError, match="link"):
        read_config(home)
    with pytest.raises(ConfigError):
        edit_config(home, lambda content: set_value(content, "a", 2))
    assert target.read_text() == "a: 1\n"


def test_typed_reads_say_where_the_wrong_value_stands(tmp_path: Path) -> None:
    write(
        tmp_path, "model:\n  default: 12\nnous:\n  guest: yes\nupdates:\n  backup_keep: 3\n  check: false\n"
    )
    config = read_config(tmp_path)
    assert config.whole("updates.backup_keep", 5) == 3
    assert config.flag("updates.check", True) is False
    assert config.text("display.skin", "default") == "default"
    with pytest.raises(ConfigError, match=r"line 2, column 12: model.default must be text"):
        config.text("model.default")
    with pytest.raises(ConfigError, match=r"line 4, column 10: nous.guest must be true or false"):
        config.flag("nous.guest")
    with pytest.raises(ConfigError):
        config.whole("updates.check")


def _add(home: str, name: str) -> None:
    for number in range(10):
        edit_config(Path(home), partial(set_value, key=f"{name}.k{number}", value=number))


def test_writers_in_several_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(str(tmp_path), name)) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(40)
        assert worker.exitcode == 0
    config: Config = read_config(tmp_path)
    assert config.get("one") == {f"k{n}": n for n in range(10)} == config.get("two")
