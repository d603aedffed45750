"""Rules of the house that no linter knows: what may stand in which room."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGIC = ROOT / "nedura"
PACKAGES = [LOGIC, ROOT / "renderers/cli/nedura_cli", ROOT / "renderers/gateway/nedura_gateway"]


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py") if "fixtures" not in path.parts)


def tracked_files() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name.decode() for name in names.split(b"\0") if name and (ROOT / name.decode()).is_file()]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


WRITERS = {
    "nedura/records.py",
    "nedura/update/generation/environment.py",
    "nedura/update/generation/damage.py",
    "nedura/update/bootstrap.py",
}
"""`records`, and code that runs where nothing of ours can be imported."""


def test_files_are_written_in_one_place() -> None:
    """Bare writes follow links and leave torn files; `records` does neither (threats.md 3)."""
    for path in python_files(LOGIC):
        if str(path.relative_to(ROOT)) not in WRITERS:
            check_writes(path)


def check_writes(path: Path) -> None:
    for name, call in calls(path):
        assert not name.endswith((".write_text", ".write_bytes")) or name.startswith("records."), (
            f"{path}:{call.lineno}"
        )
        assert name not in ("shutil.move", "shutil.copyfile"), f"{path}:{call.lineno} {name}"
        if name in ("open", "io.open") or (name.endswith(".open") and name != "os.open"):
            modes = [
                a.value
                for a in [*call.args, *[k.value for k in call.keywords]]
                if isinstance(a, ast.Constant)
            ]
            assert not any(isinstance(m, str) and set(m) & set("wxa+") <= set("wxa+b") and re.fullmatch("[wxab+]+", m)
                           and m not in ("b",) for m in modes), f"{path}:{call.lineno} opens for writing"  # fmt: skip


SIGNALLERS = {"nedura/fleet/signals.py", "nedura/update/bounded.py"}


def test_signals_are_sent_in_one_place() -> None:
    """A signal goes to a verified process, never to a bare pid (threats.md 4)."""
    for path in python_files(*PACKAGES):
        if str(path.relative_to(ROOT)) not in SIGNALLERS:
            for name, call in calls(path):
                assert name not in ("os.kill", "os.killpg"), f"{path}:{call.lineno}"


FILE_LINES, FUNCTION_LINES = 500, 60


def test_no_file_and_no_function_is_too_long() -> None:
    """A file is one topic, a function one thought: what grows past this is split by what it decides."""
    long: set[str] = set()
    for path in [path for path in tracked_files() if path.suffix == ".py"]:
        name = str(path.relative_to(ROOT))
        if path.read_bytes().count(b"\n") > FILE_LINES:
            long.add(name)
        long |= {
            f"{name}::{node.name}"
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
        }
    assert long == set()


def test_every_file_that_the_pages_send_a_reader_to_is_there() -> None:
    """In ARCHITECTURE.md the left column of the last table is the specification's own names; ours stand on the right."""
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"):
        text = (ROOT / page).read_text("utf-8")
        ours, _, table = text.partition("## What the specification names")
        ours += "\n".join(row.split(" | ")[-1] for row in table.splitlines())
        named = re.findall(r"`((?:nedura|nedura_cli|tests|docs|bench|renderers)/[\w./-]+)`", ours)
        named += re.findall(r"\]\(([\w./-]+)\)", text)
        assert named, page
        for name in named:
            assert (ROOT / name).exists() or (ROOT / "renderers/cli" / name).exists(), f"{page} names {name}"


def test_no_test_asks_for_ci_itself() -> None:
    """One rule makes a missing part fail there (tests/conftest.py, decision 57)."""
    for path in python_files(ROOT / "tests"):
        if path != ROOT / "tests/conftest.py" and "soak" not in path.parts:
            for name, call in calls(path):
                asked = [a.value for a in call.args if isinstance(a, ast.Constant)]
                assert not (name == "os.environ.get" and "CI" in asked), f"{path}:{call.lineno}"


def test_no_test_patches_a_module() -> None:
    for path in python_files(ROOT / "tests"):
        for name, call in calls(path):
            assert name not in ("monkeypatch.setattr", "mock.patch", "patch.object"), f"{path}:{call.lineno}"


def test_no_tracked_file_names_a_registry_host_or_a_machine_path() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs.org", "deb." + "debian.org"]
    places = [str(ROOT) + "/", "/" + "work/main", "/" + "root/"]
    for path in tracked_files():
        if path == Path(__file__):
            continue
        text = path.read_text("utf-8", "replace")
        for needle in [*hosts, *places]:
            assert needle not in text, f"{path.relative_to(ROOT)} names {needle}"


PROBE = """
import os, sys, socket, io
before = dict(os.environ); sys.stdout = out = io.StringIO(); sys.stderr = err = io.StringIO()
opened = []
real = socket.socket.__init__
def spy(self, *a, **k):
    opened.append(a); real(self, *a, **k)
socket.socket.__init__ = spy
import importlib, pkgutil
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for info in pkgutil.walk_packages(package.__path__, name + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
assert dict(os.environ) == before, "an import wrote the environment"
assert not out.getvalue() and not err.getvalue(), "an import printed"
assert not opened, "an import opened a socket"
"""


def test_importing_every_module_does_nothing() -> None:
    subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, "nedura", "nedura_cli", "nedura_gateway"],
        check=True,
        env={**os.environ, "NEDURA_HOME": "/nonexistent/home"},
        timeout=50,
    )


def test_importing_the_package_is_cheap() -> None:
    code = "import sys; import nedura; print(sorted(m for m in sys.modules if m.split('.')[0] in ('attr', 'attrs', 'httpx', 'asyncio')))"
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_pinned_sorted_and_real() -> None:
    import nedura

    assert list(nedura.__all__) == sorted(nedura.__all__)
    for name in nedura.__all__:
        assert getattr(nedura, name) is not None
    assert set(nedura.__all__) <= set(dir(nedura))


def test_every_command_has_a_handler_that_exists() -> None:
    import argparse
    import importlib

    from nedura.commands import build_parser

    def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
        subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not subs:
            yield parser
        for action in subs:
            for child in {id(p): p for p in action.choices.values()}.values():
                yield from leaves(child)

    for leaf in leaves(build_parser()):
        handler = leaf.get_default("handler")
        assert handler, f"{leaf.prog} has no handler"
        module, _, function = str(handler).partition(":")
        assert callable(getattr(importlib.import_module(module), function)), handler
