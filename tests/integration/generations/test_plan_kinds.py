"""What a plan looks at to tell the kind of an install: odd files there neither hold it nor mislead it (C001, C003, C007 and their like)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nedura.errors import RefusedError
from nedura.installs import find_installs, generation_of
from nedura.product import NEDURA
from nedura.testing.installs import TOY, git, make_origin
from nedura.update.generation.aftermath import follow_source
from nedura.update.generation.install import install_checkout
from nedura.update.planning.admission import find_subject, refusal_of
from nedura.update.planning.install_kind import InstallKind
from nedura.update.planning.observe import Machine, declared_owner
from nedura.update.planning.plan import plan_update
from nedura.update.source.check import check_for_update
from tests.kits.sealed import Stages


def kind_of(base: Path) -> InstallKind:
    """The kind of a bare tree in `base/tree` on a machine whose root is `base/root`."""
    for folder in ("tree/pkg", "home", "root/etc/nedura"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    machine = Machine(root=base / "root", executable="/usr/bin/python3")
    return find_subject(base / "home", NEDURA, {}, anchor=base / "tree/pkg/main.py", machine=machine).kind


@pytest.mark.parametrize(
    "name",
    ["home/.install_method", "tree/.install_method", "tree/.managed", "tree/install-stamp.json", "root/etc/nedura/image-label"],
)  # fmt: skip
def test_a_pipe_in_the_place_of_a_stamp_does_not_hold_the_plan(tmp_path: Path, name: str) -> None:
    kind_of(tmp_path)
    os.mkfifo(tmp_path / name)
    assert kind_of(tmp_path).code == "no_git"


LABELS = {
    "long, with a tag in capitals": (
        "registry.example.org:5000/some-organisation/infrastructure/agents/nedura:V1.2-RC1\n",
        "docker pull registry.example.org:5000/some-organisation/infrastructure/agents/nedura:V1.2-RC1",
    ),
    "a digest": (f"r.example/n@sha256:{'ab' * 32}", f"docker pull r.example/n@sha256:{'ab' * 32}"),
    "control characters": ("r.example/n\x1b[31m", "docker pull nedura:latest"),
    "a command": ("r.example/n; reboot", "docker pull nedura:latest"),
}


@pytest.mark.parametrize(("text", "command"), LABELS.values(), ids=LABELS)
def test_the_image_of_a_label_is_named_as_it_stands_or_not_at_all(
    tmp_path: Path, text: str, command: str
) -> None:
    """A name that is cut or put into small letters is another image, or none."""
    kind_of(tmp_path)
    (tmp_path / "root/etc/nedura/image-label").write_text(text)
    found = kind_of(tmp_path)
    assert (found.kind, found.mechanism, found.exit_code) == ("docker", command, 2)


def test_a_stamp_that_names_nobody_is_shown(tmp_path: Path) -> None:
    kind_of(tmp_path)
    (tmp_path / "tree/install-stamp.json").write_text("{")
    (told,) = kind_of(tmp_path).conflicts
    assert "install-stamp.json" in told


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_steward_may_have_written_its_stamp_as_another_user(tmp_path: Path) -> None:
    kind_of(tmp_path)
    stamp = tmp_path / "tree/install-stamp.json"
    stamp.write_text(json.dumps({"owner": "external", "name": "Puppet"}))
    os.chown(stamp, 4242, 4242)
    found = kind_of(tmp_path)
    assert (found.code, found.exit_code) == ("external", 0)


async def test_a_mark_of_a_manager_in_the_checkout_is_no_edit_and_locks_nobody_out(stages: Stages) -> None:
    """Carried into the generation it made every later update, rollback and repair say: managed by nix."""
    site = stages.site
    (site.checkout / ".managed").write_text("nix\n")
    (site.checkout / "mine.txt").write_text("mine\n")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    tree = site.paths.current / "tree"
    assert (tree / "mine.txt").is_file()
    assert not (tree / ".managed").exists()


async def test_a_generation_that_already_carries_such_a_mark_is_updated(stages: Stages) -> None:
    site = stages.site
    tree = Path(os.path.realpath(site.paths.current)) / "tree"
    tree.chmod(0o755)
    for name in (".managed", ".install_method"):
        (tree / name).write_text("nix\n")
    anchor = tree / "toy/main.py"
    assert generation_of(anchor) is not None
    assert refusal_of(find_subject(site.home, site.product, {}, anchor=anchor).kind) is None
    plan = await plan_update(home=site.home, product=site.product, anchor=anchor)
    assert (plan.install_method, plan.updatable_in_place) == ("git", True)


@pytest.mark.parametrize(
    ("name", "text"),
    [("install-stamp.json", '{"owner": "external", "name": "Puppet"}'), (".managed", "puppet")],
)
async def test_a_source_that_somebody_else_updates_is_not_moved(stages: Stages, name: str, text: str) -> None:
    """The install is ours to update, the checkout that it came from is not."""
    site = stages.site
    (site.checkout / name).write_text(text)
    head = git(site.checkout, "rev-parse", "HEAD")
    site.origin.commit({"toy/value.py": "VALUE = 2\n"})
    await stages.update()
    assert site.run().stdout.splitlines()[0] == "2"
    done = follow_source(site.paths, dict(os.environ))
    assert done.startswith("left: ")
    assert "uppet" in done
    assert git(site.checkout, "rev-parse", "HEAD") == head


def test_a_plain_checkout_declares_nobody(tmp_path: Path) -> None:
    assert declared_owner(tmp_path, NEDURA) == ""


async def test_a_checkout_whose_path_is_not_utf8_is_told_in_words(tmp_path: Path) -> None:
    """Plan, check and update ended with "unexpected UnicodeEncodeError"; no record of ours could hold the path."""
    origin = make_origin(tmp_path / "origin")
    odd = Path(os.fsdecode(os.fsencode(tmp_path / "odd") + b"\xff"))
    origin.clone(odd)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    anchor = odd / "toy/main.py"
    plan = await plan_update(home=home, product=TOY, anchor=anchor)
    assert list(plan.unreadable) == ["source"]
    assert plan.unreadable["source"].endswith("its path is not UTF-8. Rename the folder.")
    with pytest.raises(RefusedError, match="not UTF-8") as told:
        check_for_update(home, TOY, dict(os.environ), anchor=anchor)
    assert "Rename" in told.value.advice
    with pytest.raises(RefusedError, match="not UTF-8"):
        install_checkout(odd, home, product=TOY, environment="none")
    assert find_installs(home) == []


def test_a_folder_of_the_marker_that_leads_nowhere_fails_closed(tmp_path: Path) -> None:
    """It may have held the marker of the image; as a link to a folder without one it says nothing."""
    kind_of(tmp_path)
    folder = tmp_path / "root/etc/nedura"
    folder.rename(tmp_path / "kept")
    folder.symlink_to(tmp_path / "kept")
    assert kind_of(tmp_path).code == "no_git"
    (tmp_path / "kept").rename(tmp_path / "gone")
    machine = Machine(root=tmp_path / "root", executable="/usr/bin/python3")
    found = find_subject(tmp_path / "home", NEDURA, {}, anchor=tmp_path / "tree/pkg/main.py", machine=machine)
    assert found.kind.code == "image-marker-invalid"
