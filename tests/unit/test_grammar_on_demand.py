"""A command line's grammar is built only as far as that line can need it; nobody may see a difference."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nedura.commands import build_parser, each_parser, own_flags, subparser
from nedura.errors import UsageError

WHOLE = {path: parser.format_help() for path, parser in each_parser(build_parser())}


@pytest.mark.parametrize("path", sorted(WHOLE), ids=lambda path: " ".join(path) or "nothing")
def test_a_line_gets_the_same_help_on_every_level(path: tuple[str, ...]) -> None:
    found = {words: parser.format_help() for words, parser in each_parser(build_parser(words=path))}
    for depth in range(len(path) + 1):
        assert found[path[:depth]] == WHOLE[path[:depth]]


def test_only_what_the_line_names_is_built() -> None:
    built = {path[0] for path, _ in each_parser(build_parser(words=["-v", "fleet", "status"])) if path}
    assert built == {"fleet"}


@pytest.mark.parametrize("line", [["updte"], ["fleet", "statsu"], ["--plain", "nothing-like-it"]])
def test_a_wrong_word_is_answered_as_by_the_whole_grammar(line: list[str]) -> None:
    said = []
    for parser in (build_parser(), build_parser(words=line)):
        with pytest.raises(UsageError) as refused:
            parser.parse_args(line)
        said.append(refused.value.diagnostics())
    assert said[0] == said[1]
    assert "there is no" in said[0].lower()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["update", "--deadline", "soon"], "Argument --deadline: 'soon' is no number."),
        (["dev", "portal", "--port", "1.5"], "Argument --port: '1.5' is no whole number."),
        (["dev", "portal", "--port", ""], "Argument --port: '' is no whole number."),
    ],
)
def test_a_number_that_is_none_is_not_told_in_the_words_of_python(line: list[str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        build_parser().parse_args(line)
    assert refused.value.message == words


def test_a_value_that_is_a_commands_name_does_not_confuse_it() -> None:
    line = ["-z", "update", "-m", "auth", "fleet", "status", "--json"]
    assert build_parser(words=line).parse_args(line) == build_parser().parse_args(line)


def test_the_options_of_a_subcommand_are_those_of_the_whole_grammar() -> None:
    assert own_flags(["gateway", "run"]) == own_flags(["gateway", "run", "update"])
    assert "--handler" in (own_flags(["gateway", "run"]) or ())
    assert own_flags(["no-command-of-ours"]) is None


def test_a_command_that_is_not_named_has_no_parser() -> None:
    assert subparser(build_parser(words=["auth"]), "update") is None
    assert subparser(build_parser(), "update") is not None


LATE = {
    "nedura.update.commit.of_run",
    "nedura.update.completion.handover",
    "nedura.update.completion.spawn",
    "nedura.update.fleet_real",
    "nedura.update.generation.rollback",
    "nedura.update.state.backup",
    "nedura.update.validation.validate",
}
"""Modules of an update that are loaded when they are needed."""


def test_what_is_loaded_late_is_loaded_before_a_working_tree_moves() -> None:
    """Afterwards the files would be new code."""
    code = "import sys, nedura.update.real as real; real.preload(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not LATE - set(done.stdout.split())


def test_a_start_pays_for_nothing_it_does_not_need() -> None:
    """What the slowest imports are, and that the paths which must be quick leave them out."""
    code = (
        "import sys, nedura.update.pipeline, nedura.update.parts as parts, nedura_cli.update, nedura.update.planning.plan_collect;"
        "parts.default_parts(); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "nedura.update.generation.prepare" in loaded
    assert not {"rich.console", "urllib.request", "httpx", "plistlib", *LATE} & loaded
