"""Every way that an update of an unpacked release goes wrong costs nothing: the tree is the old one, the answer names the cause."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from nedura.errors import UpdateError
from nedura.installs import RELEASE
from nedura.testing.installs import Content
from nedura.update.commit.zip_tree import SWAP, tree_hashes
from nedura.update.ledger.obligations import TailObligation
from nedura.update.source.release import Note, Offer, archive_remote, read_note
from nedura.update.source.release_fetch import ask_index, download
from nedura.update.source.release_tree import open_release
from tests.kits.release import ReleaseWorld, Reply, Shelf, release_world, shelf
from tests.kits.site import quick_tree


def files(version: str, extra: dict[str, Content] | None = None) -> dict[str, Content]:
    """This code as another version."""
    text = f'"""The one place that names the version."""\n\n__version__ = "{version}"\n'
    return {**quick_tree(), "nedura/_version.py": text, **(extra or {})}


@pytest.fixture(scope="module")
def world() -> Iterator[ReleaseWorld]:
    with release_world(files("1.0.0")) as here:
        here.command("update", "--check")
        yield here


@pytest.fixture
def here(world: ReleaseWorld) -> Iterator[ReleaseWorld]:
    """The shared world with a sound newer release; afterwards it must be what it was."""
    if not world.shelf.replies:
        world.shelf.publish(files("1.1.0"), "1.1.0")
    sound = dict(world.shelf.replies)
    before = tree_hashes(world.tree)
    yield world
    assert tree_hashes(world.tree) == before
    assert not [name for name in os.listdir(world.tree) if "nedura-update-" in name and "lock" not in name]
    world.shelf.replies = sound


def changed(shelf: Shelf, change: Callable[[zipfile.ZipFile, zipfile.ZipFile], None]) -> None:
    """Publish the newest archive with a change, its hash stated rightly: a publisher that cannot be trusted."""
    name = f"/{shelf.offered()['archive']}"
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(shelf.replies[name].body)) as old, zipfile.ZipFile(out, "w") as new:
        new.comment = old.comment
        for info in old.infolist():
            new.writestr(info, old.read(info))
        change(old, new)
    offered = shelf.offered()
    _, note = "", attrs.make_class("Note", ["version", "commit"])(offered["version"], offered["commit"])
    shelf.publish_bytes(out.getvalue(), note)


def member(name: str, data: bytes = b"x", mode: int = 0o100644) -> Callable[[Shelf], None]:
    """An archive with one more member."""

    def change(shelf: Shelf) -> None:
        def add(_: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(info, data)

        changed(shelf, add)

    return change


def reply(**given: Any) -> Callable[[Shelf], None]:
    """The archive answers otherwise."""

    def change(shelf: Shelf) -> None:
        name = f"/{shelf.offered()['archive']}"
        shelf.replies[name] = attrs.evolve(shelf.replies[name], **given)

    return change


def index(**given: object) -> Callable[[Shelf], None]:
    """The index says otherwise; None takes a key away."""

    def change(shelf: Shelf) -> None:
        said = {**shelf.offered(), **given}
        shelf.index({key: value for key, value in said.items() if value is not None})

    return change


def cut(shelf: Shelf) -> None:
    """The connection breaks in the middle of the archive."""
    name = f"/{shelf.offered()['archive']}"
    body = shelf.replies[name].body
    shelf.replies[name] = Reply(body[: len(body) // 2], claims=len(body))


def short(shelf: Shelf) -> None:
    """A whole answer that is half the archive."""
    name = f"/{shelf.offered()['archive']}"
    shelf.replies[name] = Reply(shelf.replies[name].body[:500])


def flipped(shelf: Shelf) -> None:
    """One byte of the archive is another one."""
    name = f"/{shelf.offered()['archive']}"
    body = bytearray(shelf.replies[name].body)
    body[len(body) // 2] ^= 1
    shelf.replies[name] = Reply(bytes(body))


def no_index(shelf: Shelf) -> None:
    """Nothing at the pinned address."""
    del shelf.replies["/latest.json"]


WRONG: dict[str, tuple[Callable[[Shelf], None], str, str]] = {
    "torn": (cut, "fetch_failed", "connection"),
    "short": (short, "fetch_failed", "is cut"),
    "flipped": (flipped, "fetch_failed", "SHA-256"),
    "longer than it says": (index(size=500), "fetch_failed", "larger than"),
    "too large": (index(size=1 << 40), "fetch_failed", "at most"),
    "no hash": (index(sha256=None), "fetch_failed", "makes no sense"),
    "no index": (no_index, "fetch_failed", "status 404"),
    "index of rubbish": (lambda shelf: shelf.index([1]), "fetch_failed", "makes no sense"),
    "archive elsewhere": (index(archive="https://else.test/x.zip"), "fetch_failed", "another place"),
    "too many requests": (reply(status=429), "fetch_failed", "too many requests"),
    "archive gone": (reply(status=404, body=b"<!DOCTYPE html>x"), "fetch_failed", "names an archive that is not there (status 404)."),
    "trouble": (reply(status=503), "fetch_failed", "trouble"),
    "login": (reply(status=403), "fetch_failed", "login"),
    "led astray": (
        reply(status=302, headers={"location": "http://127.0.0.2:1/x.zip"}), "fetch_failed", "not used",
    ),
    "round and round": (
        lambda shelf: reply(status=302, headers={"location": f"/{shelf.offered()['archive']}"})(shelf),
        "fetch_failed", "address to address",
    ),
    "traversal": (member("../escape.txt"), "tree", "leaves its folder"),
    "absolute": (member("/escape.txt"), "tree", "absolute"),
    "backslash": (member("..\\escape.txt"), "tree", "absolute path or a drive"),
    "link": (member("nedura/link.py", b"/etc/passwd", 0o120777), "tree", "plain file"),
    "device": (member("nedura/aux.py"), "tree", "device of Windows"),
    "stream": (member("nedura/x.py:hidden"), "tree", "Windows reads differently"),
    "trailing dot": (member("nedura/x.py."), "tree", "Windows reads differently"),
    "case twin": (member("nedura/_VERSION.py"), "tree", "collides"),
    "bomb": (member("nedura/big.bin", b"\0" * (8 << 20)), "tree", "bomb"),
    "our marker": (member(".nedura-update-swap.json", b"{}"), "tree", "name of the updater's own"),
    "our lock": (member(".NEDURA-update.lock"), "tree", "name of the updater's own"),
    "another kind": (member(".install_method", b"docker"), "tree", "name of the updater's own"),
    "old copy": (member("nedura.nedura-update-old/x.py"), "tree", "name of the updater's own"),
    "staged copy": (member("README.md.nedura-update-staging"), "tree", "name of the updater's own"),
    "not listed": (member("nedura/extra.py"), "verify", "not what its note says"),
    "another commit": (index(commit="ab" * 20), "verify", "the index names"),
}  # fmt: skip


SMALL: dict[str, Content] = {
    "pyproject.toml": '[project]\nname = "x"\nversion = "1.1.0"\n', "nedura/_version.py": '__version__ = "1.1.0"\n',
    "nedura/main.py": "X = 1\n" * 4000,
}  # fmt: skip


async def taken(publisher: Shelf, folder: Path) -> Note:
    """What prepare does with an address, up to the judged tree."""
    environ = {"PATH": os.environ["PATH"]}
    remote = archive_remote(f"{publisher.url}/latest.json")
    offer = await ask_index(remote, environ)
    await download(offer, remote, folder / "release.zip", environ, timeout=20)
    return open_release(folder / "release.zip", folder / "tree", offer, remote.url)[1]


async def test_a_sound_release_is_taken(tmp_path: Path) -> None:
    with shelf(tmp_path / "shelf") as publisher:
        note = publisher.publish(SMALL, "1.1.0")
        assert await taken(publisher, tmp_path) == note


@pytest.mark.parametrize("name", WRONG)
async def test_what_goes_wrong_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    change, stop_class, words = WRONG[name]
    folder = tmp_path / "inner/stage"
    folder.mkdir(parents=True)
    with shelf(tmp_path / "shelf") as publisher:
        publisher.publish(SMALL, "1.1.0")
        change(publisher)
        with pytest.raises(UpdateError) as caught:
            await taken(publisher, folder)
    assert caught.value.stop_class == stop_class, caught.value.message
    assert words in caught.value.message
    assert not list(tmp_path.rglob("escape.txt"))
    assert [path.name for path in folder.iterdir()] in ([], ["release.zip"])
    if stop_class == "fetch_failed":
        assert not list(folder.iterdir()), "what is not whole is not kept"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root to mount a small disk"
)
@pytest.mark.parametrize("size", ["16k", "96k"], ids=["download", "unpacking"])
async def test_a_full_disk_is_called_that(tmp_path: Path, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(disk)], check=False
    )
    if done.returncode != 0:
        pytest.skip("mounting is not permitted here")
    noise = random.Random(7).randbytes(60_000).hex()[:60_000]
    try:
        with shelf(tmp_path / "shelf") as publisher:
            publisher.publish({**SMALL, "nedura/noise.txt": noise}, "1.1.0")
            with pytest.raises(UpdateError) as caught:
                await taken(publisher, disk)
        assert caught.value.stop_class == "disk_full", caught.value.message
        assert "Free some space" in caught.value.advice
        assert [path.name for path in disk.iterdir()] in ([], ["release.zip"])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


TOLD: dict[str, tuple[Callable[[Shelf], None], str, str]] = {
    **{name: WRONG[name] for name in ("torn", "flipped", "traversal")},
    "older": (index(version="0.9.0"), "downgrade", "older than"),
}


@pytest.mark.parametrize("name", TOLD)
def test_an_update_says_it_and_changes_nothing(here: ReleaseWorld, name: str) -> None:
    change, stop_class, words = TOLD[name]
    change(here.shelf)
    code, events = here.update("--no-backup")
    assert (code, events[-1]["outcome"], events[-1]["stop_class"]) == (1, "failed", stop_class), events[-1]
    assert words in events[-1]["stop_reason"]
    assert here.latest()["stop_class"] == stop_class
    assert not (here.site.paths.folder / "release").exists(), "what was judged bad is not kept"


def test_an_edited_tree_is_refused_before_anything_is_downloaded(here: ReleaseWorld) -> None:
    place = here.tree / "nedura/mine.py"
    place.write_text("MINE = 1\n")
    here.shelf.asked.clear()
    plan = json.loads(here.command("update", "--plan", "--json").stdout)
    code, events = here.update("--no-backup")
    place.unlink()
    assert list(plan["local_edits"]) == ["nedura/mine.py"]
    assert (code, events[-1]["stop_class"]) == (1, "local_changes_blocked")
    assert "nedura/mine.py" in events[-1]["stop_reason"]
    assert here.shelf.asked == ["/latest.json"]


@pytest.mark.parametrize("option", [("--branch", "dev"), ("--channel", "canary")])
def test_a_release_has_no_branches(here: ReleaseWorld, option: tuple[str, str]) -> None:
    receipts = here.receipts()
    told = here.command("update", *option)
    assert (told.returncode, "no branches" in told.stderr) == (2, True), told.stderr
    assert here.receipts() == receipts, "nothing is written for it"
    kept = here.command("update", "--set-channel", "canary")
    assert (kept.returncode, "no channels" in kept.stderr) == (2, True)


def test_a_release_has_no_checkout_to_convert(here: ReleaseWorld) -> None:
    done = here.command("pm", "convert")
    assert done.returncode == 2
    assert "An unpacked release has no git checkout to convert." in done.stderr
    assert "Name a git checkout" not in done.stderr, "pm convert takes no name"


def test_a_release_that_does_not_compile_costs_nothing(here: ReleaseWorld) -> None:
    here.shelf.publish(files("1.2.0", {"renderers/cli/nedura_cli/main.py": "def (\n"}), "1.2.0")
    code, events = here.update("--no-backup")
    assert (code, events[-1]["stop_class"]) == (1, "target_syntax_error")
    own = here.site.paths.folder
    assert not (own / "release").exists(), "what was unpacked goes with the run"
    kept = [path.stem for path in (own / "releases").iterdir()]
    assert kept == [here.note().commit], "an archive that failed is not kept"


def test_versions_that_fail_one_after_the_other_do_not_fill_the_disk(here: ReleaseWorld) -> None:
    """A candidate that failed goes with the run that made it; one of a killed run once it is out of grace."""
    here.shelf.publish(files("1.3.0", {"renderers/cli/nedura_cli/main.py": "def (\n"}), "1.3.0")
    assert here.update("--no-backup")[0] == 1
    generations = here.site.paths.generations
    assert list(generations.iterdir()) == []
    left = generations / "000007/tree"
    left.mkdir(parents=True)
    (left.parent / "manifest.json").write_text("{}")
    assert here.update("--no-backup", "--retry")[0] == 1
    assert [path.name for path in generations.iterdir()] == ["000007"], "it may be another's"
    os.utime(left.parent, (1e9, 1e9))
    assert here.update("--no-backup", "--retry")[0] == 1
    assert list(generations.iterdir()) == []


def test_the_pinned_address_stays_when_a_tree_names_another(here: ReleaseWorld) -> None:
    place = here.tree / RELEASE
    text = place.read_text()
    note = json.loads(text)
    index(commit=note["commit"])(here.shelf)
    left = here.site.paths.folder / "release/tree"
    left.mkdir(parents=True, exist_ok=True)
    assert here.update("--no-backup")[0] == 0  # nothing new; the address is pinned by now
    assert not left.parent.exists(), "what a killed run had unpacked does not stay for good"
    place.write_text(json.dumps({**note, "archive": "http://127.0.0.1:1/other.json"}))
    code, events = here.update("--no-backup")
    place.write_text(text)
    assert code == 0, events[-1]
    told = [event["text"] for event in events if event["kind"] == "notice"]
    assert any("127.0.0.1:1/other.json" in text and here.shelf.url in text for text in told), told


def test_a_killed_download_is_forgotten(here: ReleaseWorld) -> None:
    """The process dies while the archive comes in: the next run closes its receipt, and nothing of it is left."""
    cut(here.shelf)
    name = f"/{here.shelf.offered()['archive']}"
    here.shelf.replies[name] = attrs.evolve(here.shelf.replies[name], stall=3.0)
    here.shelf.asked.clear()
    log = (here.folder / "out").open("wb")
    with log:
        process = subprocess.Popen(
            [str(here.site.launcher), "update", "--json", "--no-backup"], env=here.environ, cwd=here.folder,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + 20
    while name not in here.shelf.asked[-1:] and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    here.shelf.replies.pop("/latest.json")
    code, events = here.update("--no-backup")
    assert (code, events[-1]["stop_class"]) == (1, "fetch_failed")
    assert "interrupted" in [receipt["outcome"] for receipt in here.receipts()]


def test_a_swap_killed_in_the_middle_is_undone_at_the_next_launch(here: ReleaseWorld) -> None:
    """The old process died with half of the entries in place; whoever comes next puts the old ones back."""
    old, staged = here.tree / "README.md.nedura-update-old", here.tree / "nedura.nedura-update-staging"
    (here.tree / "README.md").rename(old)
    (here.tree / "README.md").write_text("newer\n")
    staged.mkdir()
    (staged / "half.py").write_text("HALF = 1\n")
    entries = [{"name": "README.md", "was_there": True}, {"name": "nedura", "was_there": True}]
    marker = {"schema": 1, "pid": 4194301, "create_time": 1.0, "phase": "swapping", "entries": entries}
    (here.tree / SWAP).write_text(json.dumps(marker))
    os.chmod(here.tree / SWAP, 0o600)
    done = here.command("fleet", "status")
    assert done.returncode == 0, done.stderr
    assert not (here.tree / SWAP).exists()
    assert not staged.exists()
    assert not old.exists()


async def test_bytecode_that_a_release_brings_never_arrives(tmp_path: Path) -> None:
    """Planted compiled code would run instead of its source; nothing lists it, and nothing of it is swapped in."""
    with shelf(tmp_path / "shelf") as publisher:
        publisher.publish(SMALL, "1.1.0")
        member("nedura/__pycache__/evil.cpython-311.pyc", b"evil")(publisher)
        await taken(publisher, tmp_path)
    assert not list(tmp_path.rglob("evil*"))
    assert (tmp_path / "tree/nedura/_version.py").is_file()


async def test_a_plain_archive_of_a_forge_gets_a_note(tmp_path: Path) -> None:
    """A `.zip` address without an index: one top folder, the commit in the archive's comment, behind a redirect."""
    commit = "c0ffee" * 6 + "abcd"
    with shelf(tmp_path / "shelf") as publisher:
        publisher.replies["/archive/refs/heads/main.zip"] = Reply(status=302, headers={"location": "/real"})
        publisher.replies["/real"] = Reply(forge_zip(SMALL, commit))
        remote = archive_remote(f"{publisher.url}/archive/refs/heads/main.zip")
        offer = await ask_index(remote, {})
        assert offer.commit == ""
        await download(offer, remote, tmp_path / "release.zip", {})
        tree, note = open_release(tmp_path / "release.zip", tmp_path / "tree", offer, remote.url)
    assert (note.commit, note.version, note.archive) == (commit, "1.1.0", remote.url)
    assert read_note(tree) == note
    assert dict(note.files) == tree_hashes(tree)


async def test_an_archive_that_names_no_commit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "release.zip").write_bytes(forge_zip(SMALL, ""))
    with pytest.raises(UpdateError, match="nowhere which commit"):
        open_release(tmp_path / "release.zip", tmp_path / "tree", Offer(url=""), "")
    assert not (tmp_path / "tree").exists()


def forge_zip(tree: dict[str, Content], commit: str) -> bytes:
    """An archive as forges make them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = commit.encode()
        for name, content in tree.items():
            assert isinstance(content, str | bytes)
            archive.writestr(f"nedura-main/{name}", content)
    return out.getvalue()


def test_a_tree_that_names_no_address_is_not_promised_an_update(tmp_path: Path) -> None:
    with release_world(files("1.0.0")) as here:
        note = json.loads((here.tree / RELEASE).read_text())
        (here.tree / RELEASE).write_text(json.dumps({**note, "archive": ""}))
        plan = json.loads(here.command("update", "--plan", "--json").stdout)
        assert (plan["install_method"], plan["updatable_in_place"]) == ("zip", False)
        code, events = here.update()
        assert (code, events[-1]["stop_class"]) == (1, "no_address")


def test_a_release_whose_update_died_behind_the_swap_is_finished_at_the_next_launch(
    here: ReleaseWorld,
) -> None:
    """The tree is new, its completion never ran: the launch does it, as for every other kind of install."""
    tail = TailObligation(here.site.paths.folder)
    tail.arm()
    done = here.command("fleet", "status")
    assert "finishing what the last update left" in done.stderr, done.stderr
    assert done.returncode == 0
    assert not tail.is_armed()
