"""The frozen compat surface: every name imports from the new tree with the standard library alone, and an old process is stopped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SURFACE = ROOT / "tests/compat/old_updater_surface.json"
NAMES: list[str] = json.loads(SURFACE.read_text())["bare"]


def lacking(tree: Path, surface: Path = SURFACE) -> list[str]:
    """What a tree lacks, asked with `-S`: an old process has other packages than the new tree needs."""
    probe = ROOT / "tests/compat/surface.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(probe), str(tree), str(surface)],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.split()


def test_this_tree_has_every_name() -> None:
    assert lacking(ROOT) == []


def test_the_list_holds_what_the_spec_freezes() -> None:
    for module in ("nedura.update_handoff", "nedura.update_serve_obligations", "nedura.update_takeover"):
        assert f"{module}::" in NAMES
    assert {"nedura._old_updater::stop_for_relaunch", "nedura._old_updater::_run_child"} <= set(NAMES)


@pytest.mark.parametrize("entry", [name for name in NAMES if not name.endswith("::")])
def test_deleting_one_name_is_noticed(tmp_path: Path, entry: str) -> None:
    tree = tmp_path / "tree"
    (tree / "nedura").mkdir(parents=True)
    for name in ("__init__.py", "_lazy.py", "_version.py", "_old_updater.py", "update_handoff.py",
                 "update_serve_obligations.py", "update_takeover.py"):  # fmt: skip
        shutil.copy(ROOT / "nedura" / name, tree / "nedura" / name)
    assert lacking(tree) == []
    module, _, name = entry.partition("::")
    path = tree / (module.replace(".", "/") + ".py")
    path.write_text(path.read_text() + f"\ndel {name}\n")
    assert entry in lacking(tree)


@pytest.mark.parametrize("module", sorted({name.partition("::")[0] for name in NAMES}))
def test_deleting_a_module_is_noticed(tmp_path: Path, module: str) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "nedura", tree / "nedura", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / (module.replace(".", "/") + ".py")).unlink()
    assert f"{module}::" in lacking(tree)


OLD_PROCESS = """
import json, os, sys
sys.path.insert(0, {tree!r})
class Options: yes = True; gateway_mode = False; no_gateway_restart = False
class Before: code_sha = "a" * 40
class Run:
    run_id = "feed" * 8; root_home = {home!r}; home = {home!r}; options = Options(); snapshots = {{"default": "s1"}}
    before = Before(); lock_fds = ()
class Journal:
    receipt = {{"update_id": "feed" * 8, "started_at": "2026-01-01T00:00:00Z", "pid": os.getpid(), "outcome": "running"}}
def old_frame(run, journal):
    {call}
    print("WENT ON IN THE OLD PROCESS")
old_frame(Run(), Journal())
"""

FAKE_TAKEOVER = """
import json, sys
request = json.load(open(sys.argv[1]))
json.dump({"receipt_handled": True, "resume_handled": True, "serves_handled": True}, open(sys.argv[2], "w"))
json.dump({**request, "flags": list(sys.flags), "site": "site" in sys.modules}, open(%r, "w"))
raise SystemExit(7)
"""


@pytest.mark.parametrize(
    "call",
    [
        "from nedura import update_handoff; update_handoff.continue_update_in_fresh_interpreter({'had_desktop_app_before_update': True})",
        "from nedura import update_serve_obligations as s; s.defer_manual_serve({'pid': 1})",
        "from nedura import update_serve_obligations as s; s.retain_receipt_manual_serves({})",
        "from nedura import update_serve_obligations as s; s.record_respawn_failure(1)",
        "from nedura import update_serve_obligations as s; s.warn_pending_manual_serves(startup=True)",
        "from nedura import _old_updater; _old_updater.stop_for_relaunch()",
    ],
)
def test_an_old_process_is_stopped_and_its_data_handed_over(tmp_path: Path, call: str) -> None:
    tree, seen = tmp_path / "tree", tmp_path / "seen.json"
    shutil.copytree(ROOT / "nedura", tree / "nedura", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "nedura/update_takeover.py").write_text(FAKE_TAKEOVER % str(seen))
    code = OLD_PROCESS.format(tree=str(tree), home=str(tmp_path / "home"), call=call)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": "/nowhere", "UV_X": "1", "VIRTUAL_ENV": "/x"},
    )
    assert done.returncode == 7, done.stderr
    assert "WENT ON" not in done.stdout
    request = json.loads(seen.read_text())
    assert request["root"] == str(tree)
    assert request["update_id"] == "feed" * 8
    assert request["receipt"]["outcome"] == "running"
    assert request["assume_yes"] is True
    assert request["snapshots"] == {"default": "s1"}
    assert request["pre_update_sha"] == "a" * 40
    assert request["site"] is False


def test_incomplete_data_starts_nothing_and_asks_for_another_run(tmp_path: Path) -> None:
    code = "from nedura import _old_updater; _old_updater.stop_for_relaunch(incomplete=True)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 1
    assert "nedura update" in done.stderr


def test_a_continuation_does_not_continue_again() -> None:
    code = (
        "import os; os.environ['NEDURA_UPDATE_POST_SWAP'] = '1'\n"
        "from nedura import update_handoff as h; print(h.continue_update_in_fresh_interpreter({}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "None"


def test_handoffs_are_written_and_read_back(tmp_path: Path) -> None:
    from nedura import update_handoff

    path = update_handoff.write_handoff({"a": 1}, tmp_path)
    assert path.parent == tmp_path / "logs/update_receipts"
    assert path.stat().st_mode & 0o777 == 0o600
    assert update_handoff.read_handoff(path) == {"a": 1}
    assert update_handoff.post_swap_command(path, ["--yes"])[-2:] == [str(path), "--yes"]
    environ = update_handoff.post_swap_child_env({"PYTHONPATH": "x", "A": "b"})
    assert environ == {"A": "b", "NEDURA_UPDATE_POST_SWAP": "1"}


def test_serve_reminders_live_as_long_as_their_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    from nedura import update_serve_obligations as serves

    monkeypatch.setenv("NEDURA_HOME", str(tmp_path))
    process = subprocess.Popen(["sleep", "60"])
    row = {
        "kind": "serve",
        "profile": "alpha",
        "pid": process.pid,
        "create_time": psutil.Process(process.pid).create_time(),
    }
    assert serves.defer_manual_serve(row, require_alive=True)
    assert serves.record_respawn_failure(process.pid)
    (line,) = serves.warn_pending_manual_serves(startup=True)
    assert "could not be started again" in line
    process.kill()
    process.wait()
    assert serves.warn_pending_manual_serves() == []
    assert not serves.defer_manual_serve(row, require_alive=True)
    assert serves.retain_receipt_manual_serves({"pending_manual_serves": [row]}) == [row]


def test_what_the_frozen_entries_import_late_needs_no_package_either() -> None:
    """The takeover runs with `-S` until it has chosen a Python; a package that one of its late imports needs ends it."""
    code = (
        "import ast, importlib, sys\nsys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]:\n"
        "    for node in ast.walk(ast.parse(open(f'{sys.argv[1]}/nedura/{name}.py').read())):\n"
        "        if isinstance(node, ast.ImportFrom) and (node.module or '').startswith('nedura'):\n"
        "            module = importlib.import_module(node.module)\n"
        "            print(node.module, *(getattr(module, a.name).__name__ for a in node.names))\n"
    )
    names = ("update_takeover",)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code, str(ROOT), *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert "nedura.update.ledger.receipt opened" in done.stdout
