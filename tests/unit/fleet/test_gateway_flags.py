"""What of a gateway's command line its successor keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.fleet.gateway_flags import kept_flags

HANDLER = ("--handler", "nedura.testing.handlers:slow_words")


@pytest.mark.parametrize(
    ("argv", "kept"),
    [
        ("nedura gateway run", ()),
        ("nedura gateway", ()),
        ("nedura gateway run --force", ("--force",)),
        ("nedura gateway --force run", ("--force",)),
        ("nedura gateway --force", ("--force",)),
        ("nedura gateway run --replace --force", ("--force",)),
        ("nedura gateway run --replace", ()),
        ("nedura gateway run --external-supervisor --force", ("--force",)),
        ("nedura gateway run -vv --handler nedura.testing.handlers:slow_words", ("-vv", *HANDLER)),
        ("nedura gateway run --handler=nedura.testing.handlers:slow_words", HANDLER),
        ("nedura gateway --handler nedura.testing.handlers:slow_words run", HANDLER),
        ("nedura -p ops gateway run --force", ("--force",)),
        ("nedura gateway -p ops run --force", ("--force",)),
        ("nedura gateway run -p ops --force", ("--force",)),
        ("nedura gateway run --force --profile=ops", ("--force",)),
        ("python -m nedura_cli.main gateway run --force", ("--force",)),
        ("/x/.venv/bin/python -m nedura_gateway --handler nedura.testing.handlers:slow_words", HANDLER),
        ("nedura-gateway --force -v", ("-v", "--force")),
        ("nedura gateway run -vvvvvvvv", ("-vvv",)),
        ("nedura gateway run --handler", ()),
        ("nedura gateway run --handler os:system;id", ()),
        ("nedura gateway run --handler ../x:y", ()),
        ("nedura gateway run --handler -x:y", ()),
        ("nedura gateway run --from-tomorrow --force", ("--force",)),
        ("nedura gateway status --deep", ()),
        ("nedura gateway run --help", ()),
        ("nedura serve --force", ()),
        ("vim --force gateway run", ()),
        ("", ()),
    ],
)
def test_the_flags_that_a_successor_keeps(argv: str, kept: tuple[str, ...]) -> None:
    assert kept_flags(argv.split()) == kept


WORDS = st.sampled_from(
    [
        "--force",
        "--replace",
        "-v",
        "--handler",
        "a.b:c",
        "-p",
        "run",
        "--",
        "$(id)",
        "; rm",
        "a:b c",
        "-p=x",
        "\n",
    ]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=8))
def test_whatever_stood_there_only_our_own_flags_come_out(words: list[str]) -> None:
    kept = list(kept_flags(["nedura", "gateway", "run", *words]))
    while kept:
        flag = kept.pop(0)
        if flag == "--handler":
            module, _, function = kept.pop(0).partition(":")
            assert all(part.isidentifier() for part in module.split("."))
            assert function.isidentifier()
        else:
            assert flag in {"-v", "-vv", "-vvv", "--force"}
