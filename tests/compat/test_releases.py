"""Every packed release, in each layout it had, updates itself to this tree with live gateways (threats: a broken hand-over bricks it)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nedura.installs import InstallPaths, find_installs
from nedura.product import NEDURA
from nedura.testing.installs import Origin, Site, git, write_files
from tests.compat.test_surface import SURFACE
from tests.kits.checkout import CheckoutWorld, build
from tests.kits.site import World, quick_tree

RELEASES = sorted((Path(__file__).parents[1] / "fixtures/releases").glob("*.bundle"))
PROFILES = ("default", "alpha")


def unpack(bundle: Path, folder: Path) -> Origin:
    """A repository whose `main` is the packed release."""
    heads = git(folder, "bundle", "list-heads", str(bundle)).splitlines()
    commit = next(
        (line.split()[0] for line in heads if "/v" in line or line.endswith("HEAD")), heads[0].split()[0]
    )
    origin = folder / "origin"
    git(folder, "clone", "-q", "--no-checkout", str(bundle), str(origin))
    git(origin, "checkout", "-q", "-B", "main", commit)
    return Origin(origin)


def publish(origin: Origin) -> str:
    """This very tree, with a short watch over what it restarts, as the next commit of that repository."""
    git(origin.folder, "rm", "-q", "-r", ".")
    write_files(origin.folder, quick_tree())
    git(origin.folder, "add", "-A")
    git(origin.folder, "commit", "-q", "-m", "this tree")
    return origin.head


@contextmanager
def sealed(bundle: Path) -> Iterator[World]:
    """A sealed install that the release's own installer made."""
    folder = Path(tempfile.mkdtemp(prefix="nw-"))
    (folder / "tmp").mkdir(mode=0o700)
    origin = unpack(bundle, folder)
    checkout = origin.clone(folder / "source")
    home = folder / "home"
    roots = os.pathsep.join(str(checkout / root) for root in ("", "renderers/cli", "renderers/gateway"))
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-m",
            "nedura_cli",
            "install",
            "--source",
            str(checkout),
            "--home",
            str(home),
            "--environment",
            "none",
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": roots},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (paths,) = find_installs(home)
    made = World(
        folder,
        Site(
            origin=origin,
            checkout=checkout,
            home=home,
            paths=InstallPaths(home, paths.install_id),
            product=NEDURA,
        ),
    )
    try:
        yield made
    finally:
        made.close()


FORCED = """
import importlib, json, os, sys, threading, time

def force():
    before = open({ref!r}).read()
    while open({ref!r}).read() == before:
        time.sleep(0.002)
    lacking = []
    for entry in json.load(open({surface!r}))["bare"]:
        module, _, name = entry.partition("::")
        try:
            found = importlib.import_module(module)
            if name:
                getattr(found, name)
        except Exception as error:
            lacking.append(entry + ": " + repr(error))
    with open({out!r} + ".tmp", "w") as file:
        json.dump({{"pid": os.getpid(), "lacking": lacking}}, file)
    os.replace({out!r} + ".tmp", {out!r})

if "nedura_cli.main" in sys.orig_argv and "update" in sys.orig_argv and not os.path.exists({out!r}):
    threading.Thread(target=force, daemon=True).start()
"""
"""In the old updater's own process: once the branch names the new commit, every frozen name is imported, which is then the new tree's."""


def force_lazy_imports(here: CheckoutWorld) -> None:
    """Make the release's updater import late whatever any release may import late."""
    packages = next((here.folder / "venv/lib").glob("python*/site-packages"))
    ref, out = here.tree / ".git/refs/heads/main", here.folder / "forced.json"
    text = FORCED.format(ref=str(ref), surface=str(SURFACE), out=str(out))
    (packages / "forced.py").write_text(text)
    (packages / "forced.pth").write_text("import forced\n")


@contextmanager
def in_place(bundle: Path) -> Iterator[World]:
    """A checkout of the release that runs straight from its working tree."""
    folder = Path(tempfile.mkdtemp(prefix="nw-"))
    made = build(folder, unpack(bundle, folder))
    force_lazy_imports(made)
    try:
        yield made
    finally:
        made.close()


def update_to_this_tree(here: World) -> None:
    here.start(*PROFILES)
    before = here.pids(PROFILES)
    target = publish(here.site.origin)
    code, events = here.update(timeout=200)
    assert code == 0, events[-1]
    receipt = here.latest()
    assert receipt["outcome"] == "success", receipt
    assert receipt["followups"] == []
    assert {here.state(profile)["code_sha"] for profile in PROFILES} == {target}
    assert all(here.pids(PROFILES)[profile] != before[profile] for profile in PROFILES)
    if isinstance(here, CheckoutWorld):
        forced = json.loads((here.folder / "forced.json").read_text())
        assert forced == {"pid": receipt["pid"], "lacking": []}, "asked of the new tree in the old process"
    code, events = here.update(timeout=200)
    assert (code, events[-1]["changed"]) == (0, False)


@pytest.mark.skipif(not RELEASES, reason="no release is packed yet")
@pytest.mark.parametrize("bundle", RELEASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("layout", [sealed, in_place], ids=["sealed", "checkout"])
@pytest.mark.timeout(420)
def test_a_release_updates_itself_to_this_tree(bundle: Path, layout) -> None:  # type: ignore[no-untyped-def]
    with layout(bundle) as here:
        update_to_this_tree(here)


@pytest.mark.skipif(not RELEASES, reason="no release is packed yet")
@pytest.mark.parametrize("bundle", RELEASES, ids=lambda path: path.stem)
def test_no_name_that_a_release_froze_was_dropped(bundle: Path, tmp_path: Path) -> None:
    origin = unpack(bundle, tmp_path)
    frozen = origin.folder / "tests/compat/old_updater_surface.json"
    if not frozen.is_file():
        pytest.skip("that release froze nothing")
    then = set(json.loads(frozen.read_text())["bare"])
    now = set(json.loads(SURFACE.read_text())["bare"])
    assert then - now == set()
    assert all(then - (now - {name}) == {name} for name in then), "a list that lacks one name is noticed"
