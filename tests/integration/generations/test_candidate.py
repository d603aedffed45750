"""threats.md 2: what of a candidate runs, when, and with what in its environment. And a repository of ours that was damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nedura.errors import UpdateError
from nedura.update.generation.prepare_environment import changed_packages
from tests.kits.sealed import Stages

WRITE = "import json, os\nopen({path!r}, 'w').write(json.dumps(dict(os.environ)))\n"


async def test_only_the_import_probe_runs_candidate_code_and_it_sees_no_secret(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = {name: tmp_path / name for name in ("setup", "conftest", "pth", "bytecode", "main", "tests")}
    text = {name: WRITE.format(path=str(path)) for name, path in marks.items()}
    evil = tmp_path / "evil.py"
    evil.write_text(text["bytecode"])
    compiled = tmp_path / "evil.pyc"
    import py_compile

    py_compile.compile(str(evil), cfile=str(compiled), doraise=True)
    stages.site.origin.commit(
        {
            ".gitignore": "",
            "setup.py": text["setup"],
            "conftest.py": text["conftest"],
            "evil.pth": f"import os; open({str(marks['pth'])!r}, 'w').close()\n",
            f"toy/__pycache__/value.{sys.implementation.cache_tag}.pyc": compiled.read_bytes(),
            "toy/main.py": text["main"],
            "tests/test_x.py": text["tests"],
        }
    )
    monkeypatch.setenv("NEDURA_PORTAL_TOKEN", "needle")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "needle")
    await stages.update()
    assert [name for name, path in marks.items() if path.exists()] == ["main"]
    seen = json.loads(marks["main"].read_text())
    assert "needle" not in json.dumps(seen)
    assert set(seen) <= {"PATH", "LANG", "HOME", "LC_CTYPE", "PWD"}


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "sitecustomize/__init__.py"])
async def test_what_python_runs_at_each_start_is_refused(stages: Stages, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w').close()\n"
    stages.site.origin.commit({name: text})
    with pytest.raises(UpdateError, match="run at each start of Python"):
        await stages.update()
    assert not mark.exists()
    trap = tmp_path / "trap"
    (trap / name).parent.mkdir(parents=True)
    (trap / name).write_text(text)
    subprocess.run([sys.executable, "-c", f"import {name.partition('.')[0].partition('/')[0]}"],
                   env={"PYTHONPATH": str(trap), "PATH": os.environ["PATH"]}, check=True, timeout=20)  # fmt: skip
    assert mark.exists(), "the trap does not work"


async def test_variables_of_python_and_modules_in_the_way_reach_nobody(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("json", "sitecustomize", "usercustomize", "startup", "tomllib"):
        (evil / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(evil))
    monkeypatch.setenv("PYTHONSTARTUP", str(evil / "startup.py"))
    monkeypatch.chdir(evil)
    stages.site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    done = subprocess.run(
        [str(stages.site.launcher)], capture_output=True, text=True, check=False, timeout=30, cwd=evil
    )
    assert done.stdout.splitlines()[0] == "2"
    assert not mark.exists()
    subprocess.run([sys.executable, "-c", "import json"], check=False, timeout=20, cwd=evil)
    assert mark.exists(), "the trap does not work"


async def test_a_damaged_repository_of_ours_is_made_again(stages: Stages) -> None:
    """It holds nothing that cannot be fetched again, so damage costs a fetch and not the install."""
    site = stages.site
    for number in (2, 3):
        site.origin.commit({"toy/value.py": f"VALUE = {number}\n"})
        await stages.update()
    site.checkout.rename(site.checkout.with_name("away"))
    shutil.rmtree(site.paths.repo / "objects")
    (site.paths.repo / "objects").mkdir()
    site.origin.commit({"toy/value.py": "VALUE = 4\n"})
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "4"
    site.origin.commit({"toy/value.py": "VALUE = 5\n"})
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "5"


def test_changed_packages_are_told_one_by_one() -> None:
    old, new = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2.1", "d": "4"}
    assert changed_packages(old, new) == ["b 2 -> 2.1", "c 3 -> none", "d none -> 4"]
