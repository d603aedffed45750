"""Secrets in odd places: cut in two, over several lines, nested, in command lines; and bundles that must come out whatever lies there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nedura.bundle import LOG_TAIL, Bundle, BundleItem, collect_bundle, write_bundle
from nedura.errors import RefusedError, StoreError
from nedura.text import LineRedactor, redact, redact_words
from tests.kits.pipeline import GOOD_CHILD, Toy

KEY = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *(
            f"MIIEpAIBAAKCAQEA{number:02}NEEDLEabcdefghijklmnopqrstuvwxyz0123456789+/AB"
            for number in range(20)
        ),
        "-----END RSA PRIVATE KEY-----",
    ]
)
SHAPES = [
    KEY,
    json.dumps(KEY),
    json.dumps(json.dumps(KEY)),
    KEY[:500],
    KEY[:500] + "…",
    KEY.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
    "\n".join(f"2026-11-30T21:44:05Z 03d518e0 | {line}" for line in KEY.splitlines()),
    "next=https%253A%252F%252Fuser%253ANEEDLE%2540host",
    "https://s3/x?X-Amz-Signature=NEEDLEabcdef&x=1",
    "GET /cb?code=NEEDLEabcdef",
    '{"auths": {"h": {"auth": "NEEDLEabcdef"}}}',
    '"refresh": "NEEDLEabcdef"',
    "{'password': b'NEEDLEabcdef'}",
    "sshpass -p NEEDLEabc ssh x",
    "curl -u me:NEEDLEabc https://x",
    "--pass NEEDLEabc",
    "glpat-NEEDLEabcdefghijk",
    "hf_NEEDLEabcdefghijklmnopqrs",
    "pypi-AgEIcHlwaS5vcmcNEEDLEabcdefghijkl",
    "AIzaSyNEEDLEabcdefghijklmnopqrstuvwxyz12345",
    "sk_live_NEEDLEabcdefghijkl",
    "https://hooks.slack.com/services/T00/B00/NEEDLEabcdefgh",
]


@pytest.mark.parametrize("text", SHAPES)
def test_odd_shapes_are_masked(text: str) -> None:
    assert "NEEDLE" in text
    assert "NEEDLE" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "fetch: /srv/origin.git main 68c70f11fdb3 in 0.0 s",
        "update --author me -u root --key-file /etc/x?y=1",
        "a public one: -----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "exit code=1 after key presses",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_key_that_comes_line_by_line_is_masked_whole() -> None:
    mask = LineRedactor()
    said = [mask(line) for line in ["before", *KEY.splitlines(), "after"]]
    assert "NEEDLE" not in "".join(said)
    assert (said[0], said[-1]) == ("before", "after")


def test_words_of_a_command_line_are_masked() -> None:
    words = ["nedura", "serve", "--token", "NEEDLE", "--port", "80", "--api-key=NEEDLE", "", "-p", "coder"]
    assert redact_words(words) == [
        "nedura", "serve", "--token", "[redacted]", "--port", "80", "--api-key=[redacted]", "", "-p", "coder",
    ]  # fmt: skip


async def test_a_build_that_prints_its_key_leaves_none_in_the_log(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "home", child=GOOD_CHILD + f"print({KEY!r}, flush=True)\nraise SystemExit(1)\n")
    await toy.run()
    log = (toy.home / "logs/update.log").read_text()
    assert "| [redacted]" in log
    assert "NEEDLE" not in log
    assert "NEEDLE" not in json.dumps(toy.receipts())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "logs/update_receipts").mkdir(parents=True)
    return home


def bundled(home: Path) -> tuple[str, Bundle]:
    made = collect_bundle(home, ["default"], now=0.0)
    return "\n".join(item.text for item in made.items), made


def test_a_tail_never_begins_in_the_middle_of_a_secret(home: Path) -> None:
    token = "tok_" + "S" * 30 + "NEEDLE" + "Z" * 30
    (home / "auth.json").write_text(json.dumps({"nous": {"access_token": token}}))
    (home / "logs/update.log").write_text("a" * 1000 + token + "b" * (LOG_TAIL - 50))
    assert "NEEDLE" not in bundled(home)[0]
    (home / "logs/update.log").write_text("a" * 1000 + KEY + "\n" + "words\n" * (LOG_TAIL // 6 - 100))
    text, _ = bundled(home)
    assert "NEEDLE" not in text
    assert "words" in text


def test_of_a_log_of_any_size_the_end_is_in(home: Path) -> None:
    with (home / "logs/update.log").open("wb") as stream:
        stream.truncate(3 * 1024**3)  # sparse
        stream.seek(0, 2)
        stream.write(b"\nthe last words\n")
    text, made = bundled(home)
    assert "the last words" in text
    assert len({item.name: item for item in made.items}["update.log"].text) <= LOG_TAIL + 100


def test_what_cannot_be_read_is_named_and_not_shown_as_empty(home: Path) -> None:
    place = home / "logs/update_receipts/update_20260101_000000_1_big.json"
    with place.open("wb") as stream:
        stream.truncate(9 * 1024**2)
    _, made = bundled(home)
    assert "larger" in made.left_out[f"receipts/{place.name}"]


def test_a_receipt_nested_without_end_costs_nothing_else(home: Path) -> None:
    place = home / "logs/update_receipts/update_20260101_000000_1_deep.json"
    place.write_text('{"token": "NEEDLEdeep123", "a":' + "[" * 100_000 + "]" * 100_000 + "}")
    text, made = bundled(home)
    assert "NEEDLE" not in text
    assert "about.json" in {item.name for item in made.items}


def test_nested_values_command_lines_and_every_kind_of_store_are_masked(home: Path) -> None:
    env_key = KEY.replace("NEEDLE", "NEEDLEENV")
    (home / ".env").write_text(f'MY="{env_key}"\nexport Z=NEEDLEzval # a comment\n')
    (home / "config.yaml").write_text(
        "model:\n  api_key: |\n    NEEDLEblock1\ntools:\n  - {token: NEEDLEflow1, secret: 'NEEDLE two words'}\n"
        '  - "api_key": NEEDLEquoted1\n'
    )
    receipt = {
        "update_id": "r",
        "env": {"FOO_KEY": ["NEEDLElist"], "token": {"value": "NEEDLEnest"}},
        "plan": {"runtimes": [{"detail": {"argv": ["serve", "--token", "NEEDLEargv"]}}]},
    }
    (home / "logs/update_receipts/update_20260101_000000_1_r.json").write_text(json.dumps(receipt))
    (home / "logs/update.log").write_text(
        "\n".join(
            [
                "NEEDLEblock1",
                "NEEDLEflow1 NEEDLE two words NEEDLEquoted1",
                *env_key.splitlines()[3:5],
                "NEEDLEzval",
            ]
        )
    )
    text, _ = bundled(home)
    assert "NEEDLE" not in text
    assert '"serve"' in text


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    made = Bundle(items=(BundleItem(name="about.json", text="{}"),))
    with pytest.raises(RefusedError, match="is kept"):
        write_bundle(made, mine)
    assert mine.read_text() == "precious"
    assert write_bundle(made, tmp_path / "new.zip") > 0


def test_an_error_as_people_see_it_is_masked() -> None:
    error = StoreError("fatal: https://u:NEEDLEpw@host/x", advice="Retry with --token NEEDLEabc")
    assert "NEEDLE" not in error.diagnostics()
    assert "Retry" in error.diagnostics()
