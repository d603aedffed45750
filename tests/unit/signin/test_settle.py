"""The table of facts/signin.md 4, row by row: who moves, and who is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.config import read_config
from nedura.product import NEDURA
from nedura.records import write_bytes
from nedura.signin.settle import Move, Settled, decide_move, settle_after_upgrade, welcome_hosts
from tests.unit.signin.tokens import account

HOSTS = frozenset({"welcome-api.nousresearch.com"})
WELCOME = "https://welcome-api.nousresearch.com/v1"


@pytest.mark.parametrize(
    ("config", "move"),
    [
        ({}, Move.NOTHING),
        ({"model": None}, Move.NOTHING),
        ({"model": []}, Move.NOTHING),
        ({"model": "mine"}, Move.NOTHING),
        ({"model": {"default": "mine", "base_url": "https://other/v1"}}, Move.NOTHING),
        ({"model": {"default": "mine"}}, Move.NOTHING),
        ({"model": {"default": "mine", "base_url": WELCOME}}, Move.HOST),
        ({"model": {"base_url": WELCOME + "/"}}, Move.HOST),
        ({"model": {"default": "nous/welcome"}}, Move.HOST_AND_MODEL),
        ({"model": {"default": "nous/welcome", "base_url": "https://other/v1"}}, Move.HOST_AND_MODEL),
        ({"model": "nous/welcome"}, Move.HOST_AND_MODEL),
        ({"model": {"base_url": "https://welcome-api.nousresearch.com.evil/v1"}}, Move.NOTHING),
        ({"model": {"base_url": 5, "default": 7}}, Move.NOTHING),
    ],
)
def test_who_moves(config: dict[str, Any], move: Move) -> None:
    assert decide_move(config, HOSTS) is move


def test_development_hosts_can_be_named() -> None:
    hosts = welcome_hosts(NEDURA, {"NEDURA_EXTRA_WELCOME_HOSTS": "a.example, B.example,,"})
    assert hosts == {"welcome-api.nousresearch.com", "a.example", "b.example"}


@given(
    st.recursive(
        st.one_of(st.none(), st.text(), st.integers()),
        lambda x: st.dictionaries(st.sampled_from(["model", "default", "base_url"]), x),
    )
)
def test_any_config_is_judged(config: Any) -> None:
    assert isinstance(decide_move(config if isinstance(config, dict) else {"model": config}, HOSTS), Move)


async def settle(home: Path, config: bytes | None, pick: str = "nous/hermes-4-405b") -> Settled:
    if config is not None:
        write_bytes(home / "config.yaml", config)

    async def picked() -> str:
        return pick

    return await settle_after_upgrade(home, account(), environ={}, pick=picked)


OWN = b"# my notes\nmodel:\n  default: mine/model  # best\n  base_url: https://mine.example/v1\n  provider: other\nextra: 1\n"


async def test_the_users_own_model_is_never_touched(tmp_path: Path) -> None:
    assert await settle(tmp_path, OWN) == Settled(model="mine/model", changed=False)
    assert (tmp_path / "config.yaml").read_bytes() == OWN


async def test_no_config_is_no_change(tmp_path: Path) -> None:
    assert await settle(tmp_path, None) == Settled()
    assert not (tmp_path / "config.yaml").exists()


async def test_a_model_on_the_welcome_host_keeps_its_name(tmp_path: Path) -> None:
    config = f"model:\n  default: mine/model # keep\n  base_url: {WELCOME}\n  api_key: old\n  api_mode: x\n".encode()
    assert await settle(tmp_path, config) == Settled(model="mine/model", changed=True)
    after = read_config(tmp_path)
    assert after.get("model") == {
        "default": "mine/model", "base_url": "https://inference-api.nousresearch.com/v1", "provider": "nous",
    }  # fmt: skip
    assert b"# keep" in (tmp_path / "config.yaml").read_bytes()


async def test_the_welcome_model_moves_with_its_host_in_one_write(tmp_path: Path) -> None:
    config = f"# top\nmodel:\n  default: nous/welcome\n  base_url: {WELCOME}\nother: yes\n".encode()
    assert await settle(tmp_path, config) == Settled(model="nous/hermes-4-405b", changed=True)
    after = read_config(tmp_path)
    assert after.get("model.default") == "nous/hermes-4-405b"
    assert after.get("model.base_url") == "https://inference-api.nousresearch.com/v1"
    assert (tmp_path / "config.yaml").read_bytes().startswith(b"# top")
    assert after.get("other") is not None


async def test_without_a_pick_the_welcome_model_is_removed(tmp_path: Path) -> None:
    assert await settle(tmp_path, b"model: nous/welcome\n", pick="") == Settled(model="", changed=True)
    assert read_config(tmp_path).get("model") == {
        "base_url": "https://inference-api.nousresearch.com/v1", "provider": "nous",
    }  # fmt: skip


@pytest.mark.parametrize("config", [b"model: [\n", b"\xff\xfe", b"a: &a [*a]\nb: *c\n"])
async def test_a_config_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, config: bytes) -> None:
    assert await settle(tmp_path, config) == Settled()
    assert (tmp_path / "config.yaml").read_bytes() == config


async def test_a_write_that_fails_is_told_by_the_result(tmp_path: Path) -> None:
    (tmp_path / "config.yaml.lock").mkdir()
    config = b"model: nous/welcome\n"
    assert await settle(tmp_path, config) == Settled(model="nous/welcome", changed=False)
    assert (tmp_path / "config.yaml").read_bytes() == config


async def test_a_choice_made_meanwhile_stands(tmp_path: Path) -> None:
    write_bytes(tmp_path / "config.yaml", b"model: nous/welcome\n")

    async def slow() -> str:
        write_bytes(tmp_path / "config.yaml", b"model: mine\n")
        return "nous/x"

    assert await settle_after_upgrade(tmp_path, account(), environ={}, pick=slow) == Settled(model="mine")
    assert (tmp_path / "config.yaml").read_bytes() == b"model: mine\n"
