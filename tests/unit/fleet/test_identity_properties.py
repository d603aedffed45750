"""No flag value, path, wrapper or quoting makes a gateway out of something else, or hides one."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nedura.commands import build_parser
from nedura.errors import NeduraError
from nedura.fleet.argv_walk import grammars
from nedura.fleet.identity import (
    classify,
    classify_text,
    display_command,
    masked_argv,
    needle_for,
    split_text,
)

WORDS = st.sampled_from(
    [
        "gateway",
        "run",
        "status",
        "stop",
        "serve",
        "dashboard",
        "chat",
        "nedura",
        "nedura-gateway",
        "-m",
        "x y",
        "--",
    ]
)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.one_of(WORDS, NAMES, TEXT).filter(lambda value: not value.startswith("-") and value != "")
ENTRIES = st.sampled_from(
    [
        ("nedura",),
        ("/opt/x/bin/nedura",),
        ("/v/bin/python", "/v/bin/nedura"),
        ("python3.12", "-m", "nedura_cli.main"),
        ("/v/python", "-m", "nedura_cli"),
        ("/v/python", "-Im", "nedura_cli.main"),
        ("/v/python", "-mnedura_cli.main"),
        ("/v/python", "/srv/t/renderers/cli/nedura_cli/main.py"),
        ("C:\\Program Files\\n\\nedura.exe",),
    ]
)
PY_OPTIONS = st.lists(
    st.one_of(
        st.sampled_from(
            [("-B",), ("-u",), ("-I", "-S"), ("-q",), ("-X", "utf8"), ("-Xutf8",), ("-W", "error")]
        ),
        TEXT.filter(bool).map(lambda value: ("-X", value)),
        TEXT.filter(bool).map(lambda value: ("-W", value)),
        st.just(("--check-hash-based-pycs", "always")),
    ),
    max_size=4,
)


@st.composite
def entry(draw: st.DrawFn) -> list[str]:
    parts = list(draw(ENTRIES))
    if "python" in parts[0]:
        options = [token for group in draw(PY_OPTIONS) for token in group]
        return [parts[0], *options, *parts[1:]]
    return parts


@st.composite
def top_flags(draw: st.DrawFn) -> list[str]:
    """Flags of the real parser with arbitrary values; every optional value is given, or the flag would swallow what follows."""
    top, _ = grammars()
    flags: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        flag = draw(st.sampled_from(sorted(set(top.options) - {"-h", "--help", "-V", "--version"})))
        if top.arity(flag) == "none":
            flags.append(flag)
        elif flag.startswith("--") and draw(st.booleans()):
            flags.append(f"{flag}={draw(VALUES)}")
        else:
            flags += [flag, draw(VALUES)]
    return flags


@given(
    entry(),
    top_flags(),
    st.booleans(),
    st.lists(st.sampled_from(["--replace", "--force", "-v"]), max_size=2),
    st.data(),
)
def test_nothing_hides_a_gateway(
    head: list[str], flags: list[str], explicit: bool, tail: list[str], data: st.DataObject
) -> None:
    profile = data.draw(st.none() | NAMES)
    named = [] if profile is None else data.draw(st.sampled_from([["-p", profile], [f"--profile={profile}"]]))
    front = data.draw(st.booleans())
    argv = [*head, *(named if front else []), *flags, "gateway", *(["run"] if explicit else []), *tail]
    argv += [] if front else named
    verdict = classify(argv, platform="linux")
    assert verdict.gateway_run is True, (argv, verdict)
    if profile is not None and not any(flag.startswith(("-p", "--profile")) for flag in flags):
        assert verdict.profile == profile


NOT_OURS = st.sampled_from(
    [
        "vim", "git", "ssh", "sudo", "docker", "tmux", "systemctl", "bash", "sh", "env", "/usr/bin/less", "nohup",
        "nedura.real", "my-nedura", "nedura-server", "xnedura-gateway", "doppler", "/opt/nedura/tool", "kubectl", "setsid",
    ]
)  # fmt: skip


@given(NOT_OURS, st.lists(st.one_of(WORDS, TEXT), max_size=5), entry())
def test_no_wrapper_makes_a_gateway(program: str, between: list[str], tail: list[str]) -> None:
    assume(not program.startswith("…"))
    verdict = classify([program, *between, *tail, "gateway", "run"], platform="linux")
    assert verdict.gateway_run is not True
    assert verdict.profile is None


@given(
    entry(),
    top_flags(),
    st.sampled_from(["chat", "update", "mcp", "serve", "kanban"]),
    st.lists(TEXT | WORDS),
)
def test_another_subcommand_stays_what_it_is(
    head: list[str], flags: list[str], subcommand: str, tail: list[str]
) -> None:
    assume(not (tail and tail[-1].endswith("…")))
    verdict = classify([*head, *flags, subcommand, *tail], platform="linux")
    assert (verdict.gateway_run, verdict.subcommand) == (False, subcommand)


@given(TEXT.filter(bool), entry(), st.lists(TEXT, max_size=3))
def test_inline_source_and_foreign_modules_are_no_gateway(
    source: str, tail: list[str], more: list[str]
) -> None:
    assume(not source.startswith("-"))
    rest = [*more, *tail, "gateway", "run"]
    assert classify(["python3", "-c", source, *rest]).gateway_run is False
    assert classify(["python3", "-X", "utf8", "-Bc", source, *rest]).gateway_run is False
    assume(source not in ("nedura_cli", "nedura_gateway"))
    assert classify(["python3", "-m", source, *rest]).gateway_run is False


TOP = st.one_of(
    st.sampled_from(
        [["-v"], ["-vv"], ["--plain"], ["--debug"], ["-c"], ["--continue"], ["-vc", "s"], ["-vmx"]]
    ),
    st.tuples(st.sampled_from(["-m", "--model", "--provider", "--reasoning", "-z", "-c"]), VALUES).map(list),
    st.tuples(st.sampled_from(["--model", "--continue", "-z", "-m"]), VALUES).map(
        lambda pair: ["=".join(pair)]
    ),
    st.tuples(st.sampled_from(["-m", "-z", "-c"]), VALUES).map(lambda pair: ["".join(pair)]),
)
INNER = st.one_of(
    st.sampled_from([["--replace"], ["--force"], ["--external-supervisor"], ["--debug"]]),
    VALUES.map(lambda value: ["--handler", value]),
    VALUES.map(lambda value: [f"--handler={value}"]),
)
PARSER = build_parser()


def _flat(groups: list[list[str]]) -> list[str]:
    return [token for group in groups for token in group]


@given(
    st.lists(TOP, max_size=4),
    st.sampled_from([["gateway"], ["gateway"], ["fleet", "status"], ["config", "path"], []]),
    st.lists(INNER, max_size=2),
    st.sampled_from([[], ["run"], ["run"]]),
    st.lists(INNER, max_size=2),
)
def test_the_parser_itself_is_the_oracle(
    top: list[list[str]],
    command: list[str],
    inner: list[list[str]],
    verb: list[str],
    tail: list[list[str]],
) -> None:
    """Whatever the command's own parser accepts, we read the same subcommand and verb from it."""
    gateway = command == ["gateway"]
    tokens = [*_flat(top), *command, *(_flat(inner) + verb + _flat(tail) if gateway else [])]
    try:
        args = PARSER.parse_args(tokens)
    except (NeduraError, SystemExit, argparse.ArgumentError):
        return  # no process of ours runs with a line that its own parser refuses
    verdict = classify(["nedura", *tokens], platform="linux")
    assert verdict.subcommand == args.command, (tokens, verdict)
    if args.command == "gateway":
        assert verdict.verb == (args.verb or "run"), (tokens, verdict)


@given(entry(), st.lists(TEXT | WORDS, max_size=4))
def test_the_prefilter_never_hides_anything_of_ours(head: list[str], tail: list[str]) -> None:
    raw = b"\0".join(token.encode("utf-8", "surrogateescape") for token in [*head, *tail])
    assert needle_for().search(raw)


@given(st.lists(TEXT))
def test_classify_takes_any_list(argv: list[str]) -> None:
    assert classify(argv).why
    assert classify_text(" ".join(argv)).exact is False


def test_text_is_never_exact_and_a_cut_text_is_unknown() -> None:
    assert classify_text('"C:\\x\\nedura.exe" gateway run', platform="win32").gateway_run is True
    assert classify_text("nedura gateway run", width=18).gateway_run is None
    assert split_text('"C:\\a b\\nedura.exe" -z "x y"') == ["C:\\a b\\nedura.exe", "-z", "x y"]
    assert split_text('nedura "gateway run') == ["nedura", '"gateway', "run"]


def test_a_long_line_is_cut_for_people_only() -> None:
    interpreter = "/" + "x" * 186 + "/python"
    argv = [interpreter, "-m", "nedura_cli.main", "gateway", "run", "--token", "s3cret-value"]
    assert classify(argv).gateway_run is True
    shown = display_command(argv)
    assert len(shown) <= 120
    assert "s3cret" not in display_command(["nedura", "--token", "s3cret-value"])


@pytest.mark.parametrize("flag", ["-h", "--help", "-V", "--version"])
def test_short_lived_forms_are_no_gateway(flag: str) -> None:
    assert classify(["nedura", flag, "gateway", "run"]).gateway_run is False
    assert classify(["nedura-gateway", flag]).gateway_run is False


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["x", "--token", "abc", "run"], ["x", "--token", "[redacted]", "run"]),
        (["x", "--api-key=abcdefgh"], ["x", "--api-key=[redacted]"]),
        (["x", "--session-key", "abc"], ["x", "--session-key", "[redacted]"]),
        (["x", "https://u:needle@h/r"], ["x", "https://[redacted]@h/r"]),
        (["x", "--tokenizer", "abc"], ["x", "--tokenizer", "abc"]),
    ],
)
def test_what_files_and_sockets_hold_of_a_command_line(argv: list[str], shown: list[str]) -> None:
    assert masked_argv(argv) == shown
