"""What a build leaves is judged before it is taken: kinds, links, holes, names. A bad one is owed, and what was there stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.product import Build
from nedura.testing.installs import TOY, TOY_FILES, Site, make_site
from nedura.update.generation.artifact import ArtifactLimits, check_artifact, drop, is_artifact
from nedura.update.generation.build_checkout import swap_in
from tests.kits.sealed import Stages

SMALL = ArtifactLimits(files=20, size=1 << 20)


def made(tree: Path) -> Path:
    folder = tree / "web/dist"
    folder.mkdir(parents=True)
    (folder / "page").write_text("page")
    return folder


def shell(folder: Path, script: str) -> None:
    subprocess.run(["/bin/sh", "-ec", script], cwd=folder, check=True)


BIND = f"{sys.executable} -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])'"

BAD = {
    "a pipe": ("rm -r dist; mkfifo dist", "web/dist is a named pipe"),
    "a socket": (f"rm -r dist; {BIND} dist", "web/dist is a socket"),
    "a link": ("rm -r dist; ln -s /etc dist", "web/dist is a link"),
    "a broken link": ("rm -r dist; ln -s nowhere dist", "web/dist is a link"),
    "nothing": ("rm -r dist", "web/dist was not made"),
    "a file above it": ("cd ..; rm -r web; touch web", "web/dist was not made"),
    "a pipe in it": ("mkfifo dist/in", "web/dist/in is a named pipe"),
    "a socket in it": (f"{BIND} dist/s", "web/dist/s is a socket"),
    "a deep pipe": ("mkdir -p dist/a/b; mkfifo dist/a/b/c", "web/dist/a/b/c is a named pipe"),
    "an absolute link": ("ln -s /etc/passwd dist/l", "web/dist/l leads outside"),
    "an absolute link to itself": ('ln -s "$PWD/dist/page" dist/l', "web/dist/l leads outside"),
    "a link out": ("ln -s ../../secret dist/l", "web/dist/l leads outside"),
    "a detour": ("ln -s ../dist/page dist/l", "web/dist/l leads outside"),
    "out by another link": (
        "mkdir -p dist/a/b; ln -s .. dist/a/b/up; ln -s a/b/up/../../x dist/l",
        "web/dist/l leads outside",
    ),
    "a hole": ("truncate -s 1T dist/big", "web/dist has more than 1 MB, holes included"),
    "many": (
        "cd dist; for n in 1 2 3 4 5; do mkdir $n; touch $n/1 $n/2 $n/3; done",
        "web/dist has more than 20 files",
    ),
    "no name": ("touch dist/'a\nb'", "control characters"),
    "no text": ("touch dist/$(printf '\\377')", "undecodable bytes"),
    "behind a link": ("cd ..; mv web ../elsewhere; ln -s ../elsewhere web", "web/dist lies behind a link"),
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_taken_is_named(tmp_path: Path, name: str) -> None:
    script, words = BAD[name]
    shell(made(tmp_path / "tree").parent, script)
    with pytest.raises(UpdateError) as caught:
        check_artifact(tmp_path / "tree/web/dist", tmp_path / "tree", SMALL)
    assert words in caught.value.message
    assert caught.value.stop_class == "build"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_a_device_is_never_read(tmp_path: Path) -> None:
    dist = made(tmp_path / "tree")
    try:
        os.mknod(dist / "zero", 0o020666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(UpdateError, match="web/dist/zero is a device"):
        check_artifact(dist, tmp_path / "tree")


def test_links_that_stay_inside_and_ends_nowhere_are_taken(tmp_path: Path) -> None:
    """As macOS bundles have them."""
    dist = made(tmp_path / "tree")
    (dist / "Versions/A").mkdir(parents=True)
    (dist / "Versions/Current").symlink_to("A")
    (dist / "Home").symlink_to("Versions/Current/../A")
    (dist / "later").symlink_to("not-yet")
    (dist / "loop").symlink_to("loop")
    check_artifact(dist, tmp_path / "tree")


def test_a_file_with_a_second_name_elsewhere_becomes_one_of_its_own(tmp_path: Path) -> None:
    """pnpm and cargo link into caches: what is sealed must not change with the cache, and its mode not the cache's."""
    dist = made(tmp_path / "tree")
    (tmp_path / "cache").write_text("cached")
    (tmp_path / "cache").chmod(0o755)
    os.link(tmp_path / "cache", dist / "tool")
    check_artifact(dist, tmp_path / "tree")
    assert sorted(path.name for path in dist.iterdir()) == ["page", "tool"]
    assert (dist / "tool").stat().st_nlink == (tmp_path / "cache").stat().st_nlink == 1
    assert ((dist / "tool").read_text(), (dist / "tool").stat().st_mode & 0o777) == ("cached", 0o755)


def with_build(folder: Path) -> Site:
    build = Build(
        name="web", command=("/bin/sh", "web/make.sh"), inputs=("web",), artifact="web/dist", stamp="web.json", timeout=20
    )  # fmt: skip
    product = attrs.evolve(TOY, builds=(build,))
    return make_site(
        folder, {**TOY_FILES, "web/make.sh": "mkdir -p web/dist && echo 1 > web/dist/out\n"}, product=product
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("mkfifo web/dist", "is a named pipe"),
        ("mkdir web/dist; mkfifo web/dist/p", "is a named pipe"),
        ("ln -s /etc web/dist", "is a link"),
        ("mkdir $HOME/out; mv web $HOME/out; mkdir $HOME/out/web/dist; ln -s $HOME/out/web web", "lies behind a link"),
        ("mkdir web/dist; truncate -s 9T web/dist/big", "holes included"),
    ],
)  # fmt: skip
async def test_a_bad_artifact_is_owed_and_leaves_the_old_one_and_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    site = with_build(tmp_path)
    (site.home / "web.json").write_text("{}")
    stages = Stages(site)
    first = await stages.update()
    assert first.candidate is not None
    assert (first.candidate.tree / "web/dist/out").read_text() == "1\n"
    stamped = (site.home / "web.json").read_text()
    site.origin.commit({"web/make.sh": f"{script}\n"})
    run = await stages.update()
    (owed,) = stages.told("follow_up")
    assert (owed.step, words in owed.reason) == ("build", True), owed.reason
    assert run.candidate is not None
    assert (run.candidate.tree / "web/dist/out").read_text() == "1\n"
    assert (site.home / "web.json").read_text() == stamped, "stamped last: only by a build that was taken"
    site.origin.commit({"web/make.sh": "echo 2 > web/dist\n"})
    run = await stages.update()
    assert run.candidate is not None
    assert (run.candidate.tree / "web/dist").read_text() == "2\n", "a single file is an artifact, too"


def test_what_stands_in_the_place_of_an_artifact_gives_way_whatever_it_is(tmp_path: Path) -> None:
    """In a checkout: a pipe there made a good build fail after it was in place, and left the pipe beside it."""
    source = made(tmp_path / "built")
    for number, script in enumerate(("mkfifo dist", "touch dist", "mkdir dist", "ln -s nowhere dist")):
        live = tmp_path / f"live{number}"
        live.mkdir()
        shell(live, script)
        swap_in(source, live / "dist")
        assert [path.name for path in live.iterdir()] == ["dist"]
        assert (live / "dist/page").read_text() == "page"


def test_only_a_file_or_folder_counts_as_an_artifact(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    assert [is_artifact(tmp_path / name) for name in ("pipe", "link", "", "gone")] == [
        False,
        True,
        True,
        False,
    ]
    assert not is_artifact(tmp_path / "link", links=False)
    drop(tmp_path / "pipe")
    drop(tmp_path / "link")
    assert not list(tmp_path.iterdir())
