"""`nedura config` as a person meets it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nedura.config import replace_config
from nedura.config_keys import KEYS, find_key, parse_value
from nedura.errors import ConfigError, NeduraError
from nedura.skin_data import BUILT_IN
from nedura.update.source.channels import CHANNELS
from nedura_cli.config import masked

Run = Callable[..., CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[3]


def test_set_get_show_and_path(tmp_path: Path, nedura: Run) -> None:
    (tmp_path / "config.yaml").write_text("# mine\nfuture: {x: 1}   # keep\n")
    assert nedura("config", "set", "updates.check", "off").returncode == 0
    assert nedura("config", "get", "updates.check").stdout == "false\n"
    assert json.loads(nedura("config", "get", "future.x", "--json").stdout) == {
        "kind": "config_value",
        "key": "future.x",
        "value": 1,
    }
    assert (tmp_path / "config.yaml").read_text().startswith("# mine\nfuture: {x: 1}   # keep\n")
    assert nedura("config", "show").stdout == "future.x = 1\nupdates.check = false\n"
    assert nedura("config", "path").stdout == f"{tmp_path}/config.yaml\n"


def test_a_value_that_is_not_set_is_exit_1(nedura: Run) -> None:
    done = nedura("config", "get", "model.default")
    assert done.returncode == 1
    assert done.stderr == "nedura: model.default is not set. See: nedura config show\n"


def test_an_error_names_line_and_column_and_says_how_to_mend_it(tmp_path: Path, nedura: Run) -> None:
    (tmp_path / "config.yaml").write_text("a: 1\nb: [1, 2\nc: 2\n")
    done = nedura("config", "show", "--json")
    assert done.returncode == 1
    assert "config.yaml line 3, column 2" in done.stderr
    assert "nedura config edit" in done.stderr
    assert json.loads(done.stdout)["kind"] == "error"


def test_secrets_are_masked(tmp_path: Path, nedura: Run) -> None:
    (tmp_path / "config.yaml").write_text("bot: {my_token: abcdefghijkl, note: 'Bearer abcdefghijklmnop'}\n")
    shown = nedura("config", "show").stdout + nedura("config", "show", "--json").stdout
    assert "abcdefghijkl" not in shown
    assert masked({"api_key": ["x"]}) == {"api_key": ["[redacted]"]}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("updates.check", "Yes", True),
        ("updates.backup_keep", "3", 3),
        ("model.default", "007", "007"),
        ("display.background", "light", "light"),
        ("gateway.multiplex_profile_allowlist", "a, b", ["a", "b"]),
        ("update.installs.abc.channel", "main", "main"),
        ("model.base_url", "https://inference.example/v1", "https://inference.example/v1"),
        ("gateway.operators", "telegram:7, matrix:@a:example", ["telegram:7", "matrix:@a:example"]),
        ("other.key", "[1, two]", [1, "two"]),
        ("other.key", "null", None),
    ],
)
def test_values_are_typed(name: str, text: str, value: object) -> None:
    assert parse_value(Path("/nonexistent"), name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("updates.check", "maybe"),
        ("updates.backup_keep", "3.5"),
        ("display.background", "pink"),
        ("x", "[1"),
        ("update.installs.abc.channel", "stabel"),
        ("model.base_url", "inference.example/v1"),
        ("model.base_url", "http://inference.example/v1"),
        ("gateway.operators", "alice"),
        ("gateway.operators", "matrix:@a:example, :7"),
        ("gateway.multiplex_profile_allowlist", "coder, Not A Name"),
    ],
)
def test_wrong_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(NeduraError):
        parse_value(Path("/nonexistent"), name, text)


def test_a_skin_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, nedura: Run) -> None:
    assert nedura("skin", "new", "mine").returncode == 0
    for verb in (("config", "set", "display.skin"), ("skin", "use")):
        refused = nedura(*verb, "nosuch")
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        for name in ("nosuch", *BUILT_IN, "mine"):
            assert name in refused.stderr
    assert not (tmp_path / "config.yaml").exists()
    assert nedura("config", "set", "display.skin", "mine").returncode == 0
    assert "skin: mine" in (tmp_path / "config.yaml").read_text()


def test_the_channels_of_the_config_are_those_of_the_update() -> None:
    key = find_key("update.installs.abc.channel")
    assert key is not None
    assert key.choices == CHANNELS


def test_editing_saves_only_what_can_be_read(tmp_path: Path, nedura: Run) -> None:
    assert nedura("config", "edit").returncode == 2, "without a terminal it is refused"
    with pytest.raises(ConfigError, match="line 1"):
        replace_config(tmp_path, b"a: [", b"")
    assert not (tmp_path / "config.yaml").exists()
    replace_config(tmp_path, b"a: 1\n", b"")
    with pytest.raises(ConfigError, match="somebody else"):
        replace_config(tmp_path, b"a: 2\n", b"")
    assert (tmp_path / "config.yaml").read_bytes() == b"a: 1\n"


def test_every_key_that_the_code_reads_is_known() -> None:
    """A `config.get("a.b")` anywhere in the logic layer has its row in the table."""
    for path in (*(ROOT / "nedura").rglob("*.py"), *(ROOT / "renderers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("get", "text", "flag", "whole")
                and "config" in ast.unparse(node.func.value)
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", str(node.args[0].value))
            ):
                assert find_key(str(node.args[0].value)), f"{path}:{node.lineno}"
    assert all(key.about for key in KEYS.values())
