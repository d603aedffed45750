"""Environments: hash-checked wheels from a local folder, judged before their Python first starts (threats.md 2)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.records import make_folder, write_bytes
from nedura.testing.installs import TOY, TOY_FILES, make_origin
from nedura.update.generation.environment import ensure_environment, is_complete, verify_environment
from nedura.update.generation.install import install_checkout
from nedura.update.generation.interpreter import base_python

from .wheels import lock_line, sdist, sha256, wheel


class Workshop:
    """A lock file, a folder of wheels and a folder of environments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = make_folder(folder / "wheels")
        self.mark = folder / "mark"

    def lock(self, *lines: str) -> Path:
        path = self.folder / "requirements.lock"
        write_bytes(path, "".join(lines).encode())
        return path

    def build(
        self, lock: Path, environ: dict[str, str] | None = None, *, wheels: bool = True
    ) -> dict[str, Any]:
        request = {
            "python": base_python(), "lock": str(lock), "envs": str(self.folder / "envs"),
            "wheels": str(self.wheels) if wheels else "",
        }  # fmt: skip
        return ensure_environment(request, environ)

    def python(self, built: dict[str, Any], code: str) -> str:
        run = [f"{built['path']}/bin/python", "-I", "-c", code]
        return subprocess.run(run, capture_output=True, text=True, check=True, timeout=30).stdout

    def leftovers(self) -> list[str]:
        envs = self.folder / "envs"
        return sorted(os.listdir(envs)) if envs.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def good(shop: Workshop, version: str = "1.0") -> Path:
    return wheel(shop.wheels, "alpha", version, {"alpha/__init__.py": f"VERSION = {version!r}\n"})


def without_uv(shop: Workshop) -> dict[str, str]:
    """The environment of a machine that has no uv, whatever this one has."""
    return {**os.environ, "PATH": str(make_folder(shop.folder / "nothing"))}


def test_a_wheel_folder_is_enough_and_the_second_time_is_no_step(shop: Workshop) -> None:
    lock = shop.lock(lock_line("alpha", "1.0", sha256(good(shop))))
    first = shop.build(lock, without_uv(shop))
    assert (first["built"], first["tool"], first["packages"]) == (True, "pip", {"alpha": "1.0"})
    assert shop.python(first, "import alpha; print(alpha.VERSION)") == "1.0\n"
    again = shop.build(lock)
    assert (again["built"], again["hash"]) == (False, first["hash"])
    folder = Path(first["path"])
    assert verify_environment(folder)
    file = Path(first["site_packages"]) / "alpha/__init__.py"
    assert file.stat().st_nlink == 1
    assert file.stat().st_mode & 0o777 == 0o444
    assert (file.parent / "__pycache__").is_dir()
    file.chmod(0o644)
    file.write_text("VERSION = 'evil'\n")
    assert not verify_environment(folder)
    other = shop.build(
        shop.lock(
            lock_line("alpha", "1.0", sha256(shop.wheels / "alpha-1.0-py3-none-any.whl")), "# comment\n"
        )
    )
    assert other["hash"] != first["hash"]


def test_an_altered_wheel_and_a_source_distribution_install_nothing(shop: Workshop) -> None:
    digest = sha256(good(shop))
    wheel(shop.wheels, "alpha", "1.0", {"alpha/__init__.py": f"open({str(shop.mark)!r}, 'w')\n"})
    with pytest.raises(UpdateError, match="does not match its hash"):
        shop.build(shop.lock(lock_line("alpha", "1.0", digest)))
    source = sdist(shop.wheels, "beta", "1.0", shop.mark)
    with pytest.raises(UpdateError, match="no wheel of the wanted version") as caught:
        shop.build(shop.lock(lock_line("beta", "1.0", sha256(source))))
    assert caught.value.stop_class == "dependencies"
    assert not shop.mark.exists()
    assert shop.leftovers() == []


STARTERS = {
    "pth": {"evil.pth": "import os; open('{mark}', 'w').close()\n"},
    "pth with a tab": {"evil.pth": "import\tos; open('{mark}', 'w').close()\n"},
    "pth without a stem": {".pth": "import os; open('{mark}', 'w').close()\n"},
    "pth behind a long comment": {"evil.pth": "#" * 70_000 + "\nimport os; open('{mark}', 'w').close()\n"},
    "sitecustomize": {"sitecustomize.py": "open('{mark}', 'w').close()\n"},
}


@pytest.mark.parametrize("files", STARTERS.values(), ids=STARTERS)
def test_what_would_run_at_start_is_judged_before_it_starts(shop: Workshop, files: dict[str, str]) -> None:
    made = wheel(
        shop.wheels,
        "gamma",
        "1.0",
        {k: v.format(mark=shop.mark) for k, v in files.items()} | {"gamma.py": ""},
    )
    with pytest.raises(UpdateError, match="at each start"):
        shop.build(shop.lock(lock_line("gamma", "1.0", sha256(made))))
    assert not shop.mark.exists()
    assert shop.leftovers() == []
    unguarded = shop.folder / "unguarded"
    unguarded.mkdir()
    for name, text in files.items():
        (unguarded / name).write_text(text.format(mark=shop.mark))
    steps = (
        f"import site, sys; site.addsitedir({str(unguarded)!r}); sys.path.insert(0, {str(unguarded)!r})",
        "try: import sitecustomize",
        "except ImportError: pass",
    )
    code = "\n".join(steps)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
    assert shop.mark.exists(), "the trap does not work"


def fake_uv(folder: Path, body: str) -> str:
    """A uv on PATH that is a script; returns the PATH."""
    make_folder(folder)
    write_bytes(folder / "uv", f"#!/bin/sh\n{body}\n".encode(), 0o755)
    return f"{folder}:{os.environ['PATH']}"


DONE = 'for site in "$(dirname "$4")"/../lib/python*/site-packages; do mkdir -p "$site/alpha-1.0.dist-info"; done'
"""What a uv leaves that says it installed alpha."""

STEERING = {
    "VIRTUAL_ENV": "/opt/other/.venv", "UV_PYTHON": "3.9", "UV_SYSTEM_PYTHON": "1", "PYTHONPATH": "/opt/other", "PIP_TARGET": "/tmp/x",
    "CONDA_PREFIX": "/opt/conda", "PIP_EXTRA_INDEX_URL": "https://evil.example/simple", "UV_INDEX_URL": "https://evil.example/simple",
    "PIP_CONFIG_FILE": "/nonexistent", "PYTHONHOME": "/nonexistent", "LD_PRELOAD": "/nonexistent.so", "UV_LINK_MODE": "symlink",
}  # fmt: skip


def test_c032_variables_of_other_tools_steer_nothing(shop: Workshop) -> None:
    seen = shop.folder / "seen"
    body = f'env > {seen}; printf "%s\\n" "$@" > {seen}.args; {DONE}'
    path = fake_uv(shop.folder / "bin", body)
    built = shop.build(shop.lock("alpha==1.0 --hash=sha256:00\n"), {**os.environ, **STEERING, "PATH": path})
    inherited = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    assert not set(STEERING) & set(inherited)
    assert set(STEERING) <= set(built["dropped"])
    argv = (shop.folder / "seen.args").read_text().splitlines()
    assert argv[argv.index("--python") + 1] == f"{built['path']}/bin/python"
    assert {"--require-hashes", "--only-binary", "--link-mode"} <= set(argv)
    assert argv[argv.index("--link-mode") + 1] == "copy"


def test_c033_a_setting_that_hides_releases_is_named(shop: Workshop) -> None:
    words = "error: No solution found: alpha was filtered by exclude-newer = 2020-01-01 in uv.toml"
    path = fake_uv(shop.folder / "bin", f'echo run >> {shop.folder}/runs; echo "{words}" >&2; exit 1')
    for _ in range(2):
        with pytest.raises(UpdateError, match="exclude-newer") as caught:
            shop.build(shop.lock("alpha==1.0 --hash=sha256:00\n"), {**os.environ, "PATH": path})
        assert "uv.toml" in caught.value.advice
    assert (shop.folder / "runs").read_text() == "run\n" * 2
    assert shop.leftovers() == []


def test_c028_a_killed_installation_is_no_environment_and_is_done_again(shop: Workshop) -> None:
    """No marker, no environment: the next try replaces what a kill left, without needing anything in it."""
    lock = shop.lock("alpha==1.0 --hash=sha256:00\n")
    path = fake_uv(shop.folder / "bin", DONE)
    environ = {**os.environ, "PATH": path}
    name = shop.build(lock, environ)["hash"]
    folder = shop.folder / "envs" / name
    (folder / "complete").unlink()
    (folder / "half").mkdir()
    assert not is_complete(folder)
    assert shop.build(lock, environ)["built"]
    assert not (folder / "half").exists()


def test_c029_a_package_without_its_files_is_no_environment(shop: Workshop) -> None:
    made = wheel(
        shop.wheels, "yam", "1.0", {"yam/__init__.py": "class SafeDumper: pass\n", "yam/other.py": ""},
        leave_out=("yam/__init__.py",),
    )  # fmt: skip
    with pytest.raises(UpdateError):
        shop.build(shop.lock(lock_line("yam", "1.0", sha256(made))), without_uv(shop))
    assert shop.leftovers() == []


def test_c029_what_the_record_of_an_installed_package_names_must_be_there(shop: Workshop) -> None:
    """Whatever installed it: here a uv that says it did all of it."""
    lines = (
        'for site in "$(dirname "$4")"/../lib/python*/site-packages; do',
        'mkdir -p "$site/yam/__pycache__" "$site/yam-1.0.dist-info"',
        'printf "yam/__init__.py,,\\n" > "$site/yam-1.0.dist-info/RECORD"',
        "done",
    )
    environ = {**os.environ, "PATH": fake_uv(shop.folder / "bin", "\n".join(lines))}
    with pytest.raises(UpdateError, match=r"yam-1.0.dist-info is not complete: yam/__init__.py is missing"):
        shop.build(shop.lock("yam==1.0 --hash=sha256:00\n"), environ)
    assert shop.leftovers() == []


def test_a_managed_install_runs_on_its_own_packages(tmp_path: Path) -> None:
    """From a lock file and a folder of wheels to a running command, with no index at all."""
    wheels = make_folder(tmp_path / "wheels")
    made = wheel(wheels, "alpha", "1.0", {"alpha/__init__.py": "VERSION = '1.0'\n"})
    main = "import alpha, sys\nprint(alpha.VERSION, alpha.__file__)\n"
    files = {**TOY_FILES, "toy/main.py": main, "requirements.lock": lock_line("alpha", "1.0", sha256(made))}
    origin = make_origin(tmp_path / "origin", files)
    product = attrs.evolve(TOY, environment="managed")
    done = install_checkout(origin.folder, tmp_path / "home", product=product, wheels=wheels)
    out = subprocess.run(
        [done.launcher], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert out[0] == "1.0"
    assert "/envs/" in out[1]
    record = json.loads((tmp_path / "home/installs" / done.install_id / "install.json").read_text())
    assert record["environment"] == "managed"


@pytest.mark.system
def test_a_real_uv_installs_copies_and_checks_hashes(shop: Workshop) -> None:
    """Copies, never links into its cache: a file of one environment must not be a file of all (generations.md 3)."""
    beside = Path(sys.executable).with_name("uv")
    place = beside if beside.is_file() else shutil.which("uv")
    if place is None:
        pytest.skip("uv is not installed")
    environ = {**os.environ, "PATH": f"{Path(place).parent}:{os.environ['PATH']}"}
    digest = sha256(good(shop))
    built = shop.build(shop.lock(lock_line("alpha", "1.0", digest)), environ)
    assert built["tool"] == "uv"
    assert shop.python(built, "import alpha; print(alpha.VERSION)") == "1.0\n"
    file = Path(built["site_packages"]) / "alpha/__init__.py"
    assert (file.stat().st_nlink, file.stat().st_mode & 0o777) == (1, 0o444)
    wheel(shop.wheels, "beta", "1.0", {"beta.py": "x = 1\n"})
    with pytest.raises(UpdateError, match=r"hash|installed"):
        shop.build(shop.lock(lock_line("beta", "1.0", digest)), environ)
