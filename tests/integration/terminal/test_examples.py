"""`--help` is complete, and every example in it is true."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.commands import build_parser, each_parser, own_options
from nedura.commands.examples import EXAMPLES
from nedura.errors import UsageError
from nedura.profile_archive import export_profile
from nedura.profiles import create_profile
from nedura.wrappers import make_wrapper

ALL = [line for lines in EXAMPLES.values() for line in lines]

NOT_RUN = {
    "nedura update": "would update the checkout that the tests run from",
    "nedura update --json --run-id nightly-7": "the same",
    "nedura update --backup --yes": "the same",
    "nedura install --source ~/nedura": "builds an environment",
    "nedura install --source . --home /srv/agents": "the same",
    "nedura gateway run": "runs until it is stopped",
    "nedura -p coder gateway run": "the same",
    "nedura dev portal --port 8123": "the same",
    "nedura dev portal": "the same",
    "nedura dev portal --approve alice@example.test": "the same",
    "nedura pm convert": "would convert the checkout that the tests run from",
    "nedura pm sync": "needs an install",
    "nedura pm gc": "needs an install",
    "nedura pm status": "needs an install",
    "nedura pm status --verify --json": "needs an install",
}
"""Examples that are only parsed here; tests of their own run them."""

REFUSED = (
    "nedura config edit", "nedura -z", "nedura auth", "nedura model", "nedura gateway", "nedura snapshot", "nedura import",
    "nedura fleet explain",
)  # fmt: skip
"""What may say no in a scratch home without account, terminal, service or snapshot: one clear line, and never a traceback."""

RUNNER = """
import json, os, shlex, sys
from nedura_cli.main import main
import importlib, pkgutil, nedura, nedura_cli, nedura_gateway
for package in (nedura, nedura_cli, nedura_gateway):  # once, before the forks
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not info.name.endswith("__main__") and ".testing" not in info.name:
            importlib.import_module(info.name)
results = {}
for line, home in json.load(sys.stdin).items():
    out, err = f"{home}.out", f"{home}.err"
    pid = os.fork()
    if pid == 0:
        os.chdir(home)
        os.environ.update(NEDURA_HOME=home, HOME=f"{home}/person", PATH="/usr/bin:/bin")
        for number, name in ((1, out), (2, err)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = 99
        try:
            code = main(shlex.split(line)[1:])
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    results[line] = [code, open(out).read(), open(err).read()]
json.dump(results, sys.stdout)
"""


def test_every_command_has_help_and_examples_that_parse() -> None:
    parser = build_parser()
    for path, inner in each_parser(parser):
        words = " ".join(path)
        assert EXAMPLES.get(words), f"{words or 'nedura'} has no example"
        assert "examples:" in inner.format_help()
    for line in ALL:
        program, *argv = shlex.split(line)
        assert program == "nedura"
        try:
            parser.parse_args(argv)
        except UsageError as error:
            pytest.fail(f"{line}: {error.message}")
    assert "exit codes:" in parser.format_help()
    assert NOT_RUN.keys() <= set(ALL)


NO_RESULT = {("config", "edit"), ("gateway", "run"), ("completion",)}
"""Commands that print no result: an editor, a process that serves, a script for a shell."""


def test_every_command_that_prints_a_result_has_json() -> None:
    for path, parser in each_parser(build_parser()):
        if path and subparser_names(parser) == () and path not in NO_RESULT:
            assert "--json" in own_options(parser), " ".join(path)


def subparser_names(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    return tuple(path[0] for path, _ in each_parser(parser) if len(path) == 1)


def test_every_option_and_command_is_explained() -> None:
    for path, parser in each_parser(build_parser()):
        for action in parser._actions:
            if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
                continue
            name = action.option_strings or [action.dest]
            assert action.help or not action.option_strings, f"{' '.join(path)} {name} is not explained"


@pytest.mark.parametrize("part", range(3))
def test_every_example_runs_in_a_scratch_home(tmp_path: Path, part: int) -> None:
    ready = tmp_path / "ready"
    ready.mkdir(mode=0o700)
    create_profile(ready, "coder")
    export_profile(ready, "coder", ready / "coder.tar.gz")
    (ready / "config.yaml").write_text("display: {skin: ares}\n")
    (ready / "bin").mkdir()
    launcher = ready / "bin" / "nedura"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    make_wrapper("coder", "coder", launcher, environ={"HOME": str(ready / "person"), "PATH": "/usr/bin:/bin"})
    homes = {}
    for number, line in enumerate([one for one in ALL if one not in NOT_RUN][part::3]):
        shutil.copytree(ready, tmp_path / str(number), symlinks=True)
        (tmp_path / str(number)).chmod(0o700)
        if "profile create coder" in line:
            shutil.rmtree(tmp_path / str(number) / "profiles" / "coder")
        if "-o coder.tar.gz" in line:
            (tmp_path / str(number) / "coder.tar.gz").unlink()
        homes[line] = str(tmp_path / str(number))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(homes),
        env={**os.environ, "NEDURA_PORTAL_BASE_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    for line, (code, out, err) in json.loads(done.stdout).items():
        assert "Traceback" not in out + err, f"{line}: {err}"
        assert "unexpected" not in err, f"{line}: {err}"
        if code and line.replace(" -p coder", "").startswith(REFUSED):
            assert code in (1, 2), f"{line} ended with {code}"
            assert err.startswith("nedura: ") or out.strip(), f"{line} said nothing"
        else:
            assert code == 0, f"{line} ended with {code}: {err}"
        if "--json" in line and out:
            for record in out.splitlines():
                json.loads(record)
