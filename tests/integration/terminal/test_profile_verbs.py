"""Every profile verb: clones, renames, deletions, wrappers, exports and imports."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import stat
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nedura.config import read_config
from nedura.errors import FleetError, NeduraError, ProfileError, StoreError
from nedura.homes import profiles_root
from nedura.profile_archive import Limits, export_profile, import_profile
from nedura.profile_card import edit_card, read_card
from nedura.profile_change import delete_profile, rename_profile, use_profile
from nedura.profile_clone import is_channel_name, left_out
from nedura.profiles import create_profile, list_profiles, tombstone
from nedura.records import make_folder
from nedura.wrappers import find_wrappers, make_wrapper

Run = Callable[..., CompletedProcess[str]]


class Quiet:
    """Runtimes that note what was asked of them."""

    def __init__(self, refuse: str = "") -> None:
        self.asked: list[tuple[str, str]] = []
        self._refuse = refuse

    async def disable(self, home: Path) -> None:
        self.asked.append(("disable", home.name))
        if self._refuse == "disable":
            raise FleetError("The unit belongs to somebody else.")

    async def stop(self, home: Path) -> bool:
        self.asked.append(("stop", home.name))
        if self._refuse == "stop":
            raise FleetError("It does not end.")
        return True


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A root with a full profile `a`."""
    home = create_profile(tmp_path, "a").home
    (home / "config.yaml").write_text(
        "# mine\nmodel: {default: m}\ntelegram: {allowed: [1]}\ngateway: {platforms: {x: 1}, drain: 3}\n"
    )
    (home / ".env").write_text(
        "# note\nTELEGRAM_BOT_TOKEN=123\nOPENAI_API_KEY=sk\nexport MATRIX_ALLOWED_USERS=me\n"
    )
    (home / "SOUL.md").write_text("soul\n")
    (home / "skills" / "one").mkdir()
    (home / "skills" / "one" / "SKILL.md").write_text("skill")
    (home / "skills" / "one" / "x.pyc").write_text("no")
    (home / "memories" / "MEMORY.md").write_text("memory")
    (home / "memories" / "other.md").write_text("other")
    (home / "sessions" / "s.json").write_text("{}")
    (home / "state.db").write_text("db")
    (home / "gateway.pid").write_text("1")
    (home / "guest_handoff.json").write_text("{}")
    (home / "pairing.json").write_text("{}")
    accounts = {
        "providers": {"nous": {"refresh_token": "r", "access_token": "a"}, "openai": {"key": "k"}},
        "credential_pool": {"nous": [{"refresh_token": "r"}]},
    }
    (home / "auth.json").write_text(json.dumps(accounts))
    (home / "link").symlink_to("SOUL.md")
    (home / "dangling").symlink_to("nowhere")
    return tmp_path


def test_a_clone_takes_settings_identity_and_skills_and_no_channel(source: Path) -> None:
    home = create_profile(source, "b", clone="a").home
    assert (home / "config.yaml").read_text() == "# mine\nmodel: {default: m}\ngateway: {drain: 3}\n"
    assert (home / ".env").read_text() == "# note\nOPENAI_API_KEY=sk\n"
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600
    assert (home / "SOUL.md").read_text() == "soul\n"
    assert (home / "skills" / "one" / "SKILL.md").read_text() == "skill"
    assert not (home / "skills" / "one" / "x.pyc").exists()
    assert [path.name for path in (home / "memories").iterdir()] == ["MEMORY.md"]
    assert list((home / "sessions").iterdir()) == []
    assert not (home / "auth.json").exists()


def test_a_whole_clone_leaves_history_processes_and_single_use_sign_ins(source: Path) -> None:
    home = create_profile(source, "b", clone="a", everything=True).home
    for name in ("state.db", "gateway.pid", "guest_handoff.json", "pairing.json"):
        assert not (home / name).exists(), name
    assert list((home / "sessions").iterdir()) == []
    assert (home / "memories" / "other.md").exists()
    assert os.readlink(home / "link") == "SOUL.md"
    assert json.loads((home / "auth.json").read_text()) == {
        "providers": {"openai": {"key": "k"}},
        "credential_pool": {"nous": []},
    }


def test_channels_come_along_only_when_asked(source: Path) -> None:
    home = create_profile(source, "b", clone="a", channels=True).home
    assert "TELEGRAM_BOT_TOKEN" in (home / ".env").read_text()
    assert read_config(home).get("telegram") == {"allowed": [1]}
    with pytest.raises(ProfileError):
        create_profile(source, "c", channels=True)
    with pytest.raises(ProfileError):
        create_profile(source, "c", clone="a", skills=False)
    assert [profile.name for profile in list_profiles(source)] == ["default", "a", "b"]


def test_linked_secrets_become_private_copies(source: Path) -> None:
    outside = source / "outside.env"
    outside.write_text("KEY=1\n")
    env = source / "profiles" / "a" / ".env"
    env.unlink()
    env.symlink_to(outside)
    home = create_profile(source, "b", clone="a", everything=True).home
    assert not (home / ".env").is_symlink()
    assert (home / ".env").read_text() == "KEY=1\n"


def test_a_clone_of_the_root_takes_no_install_and_no_other_profile() -> None:
    for name in ("installs", "profiles/a/x", "bin/nedura", "shared/nous_auth.json", "node_modules/x"):
        assert left_out(name, from_root=True, channels=True), name
    for name in ("config.yaml", "skills/x", "workspace/bin/x"):
        assert not left_out(name, from_root=True, channels=True), name
    assert is_channel_name("export TELEGRAM_BOT_TOKEN")
    assert not is_channel_name("OPENAI_API_KEY")


def test_no_skills_leaves_its_mark(tmp_path: Path) -> None:
    assert (create_profile(tmp_path, "a", skills=False).home / ".no-bundled-skills").exists()


# --- use, describe, rename, delete


def test_the_sticky_profile(source: Path) -> None:
    assert use_profile(source, "A").sticky
    assert (source / "active_profile").read_text() == "a\n"
    use_profile(source, "default")
    assert not (source / "active_profile").exists()
    with pytest.raises(ProfileError):
        use_profile(source, "../a")


def test_the_card_keeps_what_it_does_not_know(source: Path) -> None:
    path = source / "profiles" / "a" / "profile.yaml"
    path.write_text("# note\nfuture: 1\n")
    edit_card(path.parent, description="about \x1b[2Jme")
    assert path.read_text() == "# note\nfuture: 1\ndescription: about me\n"
    edit_card(path.parent, description="")
    assert read_card(path.parent).description == ""
    with pytest.raises(NeduraError):
        edit_card(path.parent, display_name="x" * 65)


async def test_a_delete_stops_first_then_removes_only_the_profile(source: Path) -> None:
    (source / "mine").write_text("x")
    create_profile(source, "b")
    use_profile(source, "a")
    make_wrapper("a", "a", Path("/opt/nedura"))
    runtimes = Quiet()
    await delete_profile(source, "a", runtimes=runtimes)
    assert runtimes.asked == [("disable", "a"), ("stop", "a")]
    assert not (source / "profiles" / "a").exists()
    assert tombstone(source, "a").exists()
    assert not (source / "active_profile").exists()
    assert find_wrappers() == ()
    assert (source / "mine").read_text() == "x"
    assert [profile.name for profile in list_profiles(source)] == ["default", "b"]


async def test_a_late_writer_does_not_bring_it_back(source: Path) -> None:
    home = source / "profiles" / "a"
    await delete_profile(source, "a", runtimes=Quiet())
    with pytest.raises(StoreError, match="deleted"):
        make_folder(home / "logs")
    assert not home.exists()


@pytest.mark.parametrize("refuse", ["disable", "stop"])
async def test_what_cannot_be_stopped_is_not_deleted_or_renamed(source: Path, refuse: str) -> None:
    with pytest.raises(FleetError):
        await delete_profile(source, "a", runtimes=Quiet(refuse))
    with pytest.raises(FleetError):
        await rename_profile(source, "a", "c", runtimes=Quiet(refuse))
    assert (source / "profiles" / "a" / "SOUL.md").exists()
    assert not tombstone(source, "a").exists()


async def test_the_default_and_links_are_never_deleted(source: Path) -> None:
    with pytest.raises(ProfileError, match="default"):
        await delete_profile(source, "default", runtimes=Quiet())
    (source / "profiles" / "l").symlink_to(source / "profiles" / "a")
    with pytest.raises(ProfileError, match="link"):
        await delete_profile(source, "l", runtimes=Quiet())
    assert (source / "profiles" / "a" / "SOUL.md").exists()


async def test_read_only_folders_are_removed_too(source: Path) -> None:
    (source / "profiles" / "a" / "skills" / "one").chmod(0o500)
    await delete_profile(source, "a", runtimes=Quiet())
    assert not (source / "profiles" / "a").exists()


async def test_a_rename_moves_all_and_leaves_a_tombstone(source: Path) -> None:
    use_profile(source, "a")
    make_wrapper("a", "a", Path("/opt/a b/nedura"))
    make_wrapper("a", "helper", Path("/opt/nedura"))
    moved = await rename_profile(source, "a", "New", runtimes=Quiet())
    assert moved.name == "new"
    assert moved.sticky
    assert (moved.home / "SOUL.md").read_text() == "soul\n"
    assert tombstone(source, "a").exists()
    assert [(one.alias, one.profile) for one in find_wrappers()] == [("helper", "new"), ("new", "new")]
    assert "-p new" in find_wrappers()[1].path.read_text()
    with pytest.raises(ProfileError):
        await rename_profile(source, "new", "default", runtimes=Quiet())
    back = await rename_profile(source, "new", "a", runtimes=Quiet())
    assert back.home.is_dir()
    assert not tombstone(source, "a").exists()


async def test_the_default_only_gets_a_display_name(source: Path) -> None:
    await rename_profile(source, "default", "Home", runtimes=Quiet())
    assert read_card(source).display_name == "Home"


# --- wrappers


def test_a_wrapper_runs_the_launcher_with_the_profile(tmp_path: Path, clean_environment: Path) -> None:
    launcher = tmp_path / "a b" / "nedura"
    launcher.parent.mkdir()
    launcher.write_text('#!/bin/sh\necho "$@"\n')
    launcher.chmod(0o755)
    wrapper = make_wrapper("ops", "o", launcher)
    assert wrapper.path == clean_environment / ".local" / "bin" / "o"
    done = subprocess.run([wrapper.path, "fleet", "x y"], capture_output=True, text=True, check=True)
    assert done.stdout == "-p ops fleet x y\n"


@pytest.mark.parametrize("alias", ["ls", "gateway", "../x", "a b", ""])
def test_names_of_other_commands_are_refused(alias: str) -> None:
    with pytest.raises(ProfileError):
        make_wrapper("ops", alias, Path("/opt/nedura"), reserved={"gateway"})
    assert find_wrappers() == ()


def test_a_foreign_file_is_never_replaced_or_listed(clean_environment: Path) -> None:
    folder = clean_environment / ".local" / "bin"
    folder.mkdir(parents=True)
    (folder / "x").write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(ProfileError):
        make_wrapper("ops", "x", Path("/opt/nedura"))
    assert find_wrappers() == ()


# --- archives


def test_an_export_holds_no_credential(source: Path) -> None:
    home = source / "profiles" / "a"
    (home / "SOUL.md").write_text("my key: api_key=sk-abcdefghijklmnop and Bearer abcdefghijklmnop\n")
    for name in (".auth.json.tmp.1.0123456789ab", "auth.json.corrupt", "guest_handoff.json.corrupt.1"):
        (home / name).write_text("anon_abcdefghijklmnop")
    made = export_profile(source, "a", source / "out.tar.gz")
    with tarfile.open(made.path) as archive:
        names = archive.getnames()
        text = b"".join(archive.extractfile(name).read() for name in names)  # type: ignore[union-attr]
    assert all(name.startswith("a/") for name in names)
    assert not any(name.endswith((".env", "auth.json", "guest_handoff.json")) for name in names)
    assert b"abcdefghijklmnop" not in text
    assert "a/skills/one/SKILL.md" in names
    assert "dangling" in made.left_out
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600


def test_the_default_exports_by_allow_list(source: Path) -> None:
    (source / "SOUL.md").write_text("root soul\n")
    (source / "installs").mkdir()
    (source / "installs" / "x").write_text("x")
    made = export_profile(source, "default", source / "out.tar.gz")
    with tarfile.open(made.path) as archive:
        assert archive.getnames() == ["default/SOUL.md"]


def test_an_export_never_lands_in_a_checkout_or_over_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    with pytest.raises(ProfileError, match="checkout"):
        export_profile(source, "a", tmp_path / "repo" / "sub" / "out.tar.gz")
    (tmp_path / "there").write_text("x")
    with pytest.raises(ProfileError, match="exists"):
        export_profile(source, "a", tmp_path / "there")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreError, match="link"):
        export_profile(source, "a", tmp_path / "link" / "x.tar.gz")


def test_an_import_makes_the_same_profile(source: Path) -> None:
    made = export_profile(source, "a", source / "out.tar.gz")
    got = import_profile(source, made.path, name="b")
    assert (got.profile.home / "skills" / "one" / "SKILL.md").read_text() == "skill"
    assert (got.profile.home / "plans").is_dir()
    with pytest.raises(ProfileError, match="already"):
        import_profile(source, made.path, name="b")
    with pytest.raises(ProfileError, match="default"):
        import_profile(source, made.path, name="default")


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


BAD = {
    "parent": [member("p/../../evil")],
    "absolute": [member("/etc/evil")],
    "two tops": [member("p/a"), member("q/a")],
    "top file": [member("p")],
    "dots": [member("p/./../x")],
    "backslash": [member("p/a\\..\\b")],
    "symlink": [member("p/l", b"", type=tarfile.SYMTYPE, linkname="/etc")],
    "symlink then file": [member("p/l", b"", type=tarfile.SYMTYPE, linkname="/tmp"), member("p/l/x")],
    "hard link": [member("p/l", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "device": [member("p/d", b"", type=tarfile.CHRTYPE)],
    "pipe": [member("p/f", b"", type=tarfile.FIFOTYPE)],
    "twice": [member("p/a"), member("p/a")],
    "case twin": [member("p/Config.yaml"), member("p/config.yaml")],
    "form twin": [member("p/ﬁle"), member("p/file")],
    "file as folder": [member("p/a"), member("p/a/b")],
    "folder as file": [member("p/a/b"), member("p/a")],
    "control": [member("p/a\x1b[2J")],
    "bidi": [member("p/a\u202eb")],
    "trailing dot": [member("p/a. /x")],
    "deep": [member("p/" + "/".join("d" * 1 for _ in range(40)))],
    "long part": [member("p/" + "x" * 300)],
    "empty": [],
}


@pytest.mark.parametrize("name", BAD)
def test_unsafe_archives_make_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    path = archive(tmp_path / "bad.tar.gz", *BAD[name])
    with pytest.raises(NeduraError):
        import_profile(root, path, name="new")
    assert not (root / "profiles" / "new").exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bad.tar.gz", "root"]
    if profiles_root(root).exists():
        assert [entry.name for entry in profiles_root(root).iterdir()] == [".lock"]


def test_steering_and_trust_files_are_left_out_and_listed(tmp_path: Path) -> None:
    names = ["auth.json", ".env", "gateway.pid", "spawn-ledger.json", ".update_response", "plugins/evil.py"]
    names += ["skills/.env", "bin/nedura"]
    path = archive(tmp_path / "x.tar.gz", *(member(f"p/{name}") for name in names), member("p/SOUL.md"))
    got = import_profile(tmp_path, path)
    assert sorted(got.left_out) == sorted(names)
    assert (got.profile.home / "SOUL.md").read_text() == "x"
    assert not (got.profile.home / "plugins").exists()
    assert (got.profile.home / ".env").read_text().startswith("# Secrets")


@pytest.mark.parametrize(
    "data",
    [b"", b"not gzip", gzip.compress(b"not tar" * 200), gzip.compress(b"x" * 2048)[:-9]],
    ids=["empty", "not gzip", "not tar", "cut short"],
)
def test_damaged_archives_are_one_clear_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(data)
    with pytest.raises(StoreError):
        import_profile(tmp_path, path)


def test_bombs_end_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    archive(path, member("p/zeros", b"\0" * (64 * 1024 * 1024)))
    start = time.monotonic()
    with pytest.raises(StoreError, match="more than it may"):
        import_profile(tmp_path, path)
    many = archive(tmp_path / "many.tar.gz", *(member(f"p/{number}") for number in range(30)))
    with pytest.raises(StoreError, match="more than 20 entries"):
        import_profile(tmp_path, many, limits=Limits(members=20))
    assert time.monotonic() - start < 5
    assert [profile.name for profile in list_profiles(tmp_path)] == ["default"]


# --- as a person meets it


def test_the_verbs_on_the_command_line(tmp_path: Path, nedura: Run) -> None:
    assert nedura("profile", "create", "Coder", "--no-alias", "--description", "writes code").returncode == 0
    shown = json.loads(nedura("profile", "show", "coder", "--json").stdout)
    assert (shown["description"], shown["account"], shown["gateway_pid"]) == ("writes code", "", None)
    assert nedura("profile", "use", "coder").returncode == 0
    assert nedura("profile", "describe", "coder", "more").returncode == 0
    exported = json.loads(
        nedura("profile", "export", "coder", "-o", str(tmp_path / "c.tar.gz"), "--json").stdout
    )
    assert exported["files"] > 0
    assert nedura("profile", "import", exported["path"], "--name", "copy").returncode == 0
    done = nedura("profile", "delete", "copy")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert nedura("profile", "create", "copy").returncode == 2
    assert asyncio.run(rename_profile(tmp_path, "copy", "copy2", runtimes=Quiet())).name == "copy2"
