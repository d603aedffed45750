"""Profiles: fully isolated homes below one root, and what may be done with them.

Every verb goes through one name rule (facts/runtime.md 6.1), works below the root whatever profile is active (decision 2), builds aside
and publishes by one rename, and holds one lock of the root while it does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from nedura.config import edit_config, read_config
from nedura.errors import ConfigError, ProfileError, RecordMissing, StoreError
from nedura.homes import DEFAULT_PROFILE, PROFILE_NAME, home_for_profile, profiles_root
from nedura.locks import locked
from nedura.profile_flag import normal_name, sticky_profile
from nedura.records import fsync_folder, make_folder, read_bytes, remove, write_bytes
from nedura.text import clean

__all__ = [
    "ENV_HEADER",
    "FOLDERS",
    "NO_SKILLS",
    "RENAMING",
    "RESERVED",
    "Profile",
    "Stray",
    "check_free",
    "check_name",
    "create_profile",
    "find_profile",
    "is_deleted",
    "led_astray",
    "list_profiles",
    "profiles_lock",
    "publish",
    "stray_profiles",
    "tombstone",
]

FOLDERS: Final = ("memories", "sessions", "skills", "skins", "logs", "plans", "workspace", "cron", "home")
RESERVED: Final = frozenset({"nedura", "default", "test", "tmp", "root", "sudo"})
"""Names that no new profile gets; a folder that has one already still works."""

NO_SKILLS: Final = ".no-bundled-skills"
_TOMBSTONES: Final = ".deleted"
RENAMING: Final = b"renaming\n"
"""What the tombstone of a profile's old name holds until the rename is done."""

_SIGNS: Final = frozenset(
    {
        ".env", "SOUL.md", "auth.json", "config.yaml", "gateway.lock", "gateway_state.json", "state.db",
    }
)  # fmt: skip
"""What only a home has: one of these makes a profile of a folder that a link leads to."""

ENV_HEADER: Final = b"# Secrets of this profile, NAME=value. Readable by you alone.\n"
_SOUL: Final = b"# Who you are\n"


@attrs.frozen(kw_only=True)
class Profile:
    """One profile.

    Attributes:
        name: `default` for the root.
        home: its home.
        sticky: commands without a flag use it.
    """

    name: str
    home: Path
    sticky: bool = False


@attrs.frozen(kw_only=True)
class Stray:
    """Something in the profiles folder that is no profile (C161). Named once, never touched.

    Attributes:
        name: file name, cleaned.
        reason: why it does not count.
    """

    name: str
    reason: str


def check_name(text: str, *, new: bool = False) -> str:
    """The normal form of a profile name.

    Args:
        text: as a person typed it.
        new: also refuse names that no new profile may get.

    Raises:
        ProfileError: it is no name.
    """
    name = normal_name(text)
    if not PROFILE_NAME.fullmatch(name):
        raise ProfileError(
            f"{clean(text, 70)!r} is no profile name.",
            advice="Use 1 to 64 of a-z, 0-9, _ and -, a letter or digit first.",
        )
    if new and name in RESERVED:
        raise ProfileError(f"The name {name!r} is reserved.", advice="Choose another name.")
    return name


def _entries(root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(profiles_root(root)) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{profiles_root(root)} cannot be read: {error.strerror}.") from error


def _flaw(entry: os.DirEntry[str], root: Path) -> str:
    """Why an entry of the profiles folder is no profile; empty when it is one."""
    if entry.name == DEFAULT_PROFILE:
        return "the default profile is the root itself"
    if not PROFILE_NAME.fullmatch(entry.name):
        return "not a profile name"
    if not entry.is_dir():
        return "a dangling link" if entry.is_symlink() else "not a folder"
    if entry.is_symlink() and (flaw := led_astray(Path(entry.path), root)):
        return flaw
    if is_deleted(root, entry.name):
        return f"deleted, but not whole; finish it with: nedura profile delete {entry.name}"
    return ""


def led_astray(link: Path, root: Path) -> str:
    """Why the folder that a link among the profiles leads to is no home; empty when it is one, or could become one.

    Updates write into every profile's home, and backups read all of it.
    """
    real = os.path.realpath(link)
    inner = os.path.realpath(profiles_root(root))
    if os.path.commonpath([real, inner]) == real:
        return "a link to a folder that this home lies in"
    try:
        names = os.listdir(real)
    except OSError:  # whoever works with it says so
        return ""
    return "" if not names or not _SIGNS.isdisjoint(names) else "a link to a folder that is no home"


def is_deleted(root: Path, name: str) -> bool:
    """Whether a tombstone stands. That of a rename which was cut off before it moved anything counts for nothing (its folder is there)."""
    try:
        return read_bytes(tombstone(root, name)) != RENAMING
    except RecordMissing:
        return False
    except StoreError:
        return True  # whatever stands there marks a deleted profile


def list_profiles(root: Path) -> tuple[Profile, ...]:
    """Every profile of a root, the default first, then by name. Strange things beside them are left out.

    Raises:
        StoreError: the folder cannot be read.
    """
    sticky = sticky_profile(root)
    named = [entry.name for entry in _entries(root) if not _flaw(entry, root)]
    return (
        Profile(name=DEFAULT_PROFILE, home=root, sticky=not sticky),
        *(Profile(name=name, home=home_for_profile(root, name), sticky=name == sticky) for name in named),
    )


def stray_profiles(root: Path) -> tuple[Stray, ...]:
    """What lies in the profiles folder and is no profile; our own hidden folders are not mentioned.

    Raises:
        StoreError: the folder cannot be read.
    """
    entries = [(entry, _flaw(entry, root)) for entry in _entries(root) if not entry.name.startswith(".")]
    return tuple(Stray(name=clean(entry.name, 80), reason=flaw) for entry, flaw in entries if flaw)


def find_profile(root: Path, text: str, *, half_deleted: bool = False) -> Profile:
    """A profile by name.

    Args:
        root: the root home.
        text: its name.
        half_deleted: also one whose deletion was cut off, so that it can be finished.

    Raises:
        ProfileError: there is none of that name.
    """
    name = check_name(text)
    for profile in list_profiles(root):
        if profile.name == name:
            return profile
    home = home_for_profile(root, name)
    if half_deleted and name != DEFAULT_PROFILE and home.is_dir() and is_deleted(root, name):
        return Profile(name=name, home=home)
    raise ProfileError(f"There is no profile {name!r}.", advice="See: nedura profile list")


def check_free(root: Path, name: str) -> None:
    """Refuse a checked name that something in the profiles folder has already.

    Raises:
        ProfileError: it is taken; says what to do about a half deleted profile.
    """
    home = home_for_profile(root, name)
    if not os.path.lexists(home):
        return
    if home.is_dir() and is_deleted(root, name):
        raise ProfileError(
            f"The profile {name!r} was deleted, but not whole.",
            advice=f"Finish it with: nedura profile delete {name}",
        )
    raise ProfileError(f"There is a profile {name!r} already.", advice="Choose another name.")


def tombstone(root: Path, name: str) -> Path:
    """The mark of a deleted profile: while it stands nobody makes that home again."""
    return profiles_root(root) / _TOMBSTONES / name


@contextmanager
def profiles_lock(root: Path) -> Iterator[None]:
    """One profile operation of a root at a time.

    Raises:
        LockTimeout: another one runs.
    """
    folder = make_folder(profiles_root(root))
    with locked(folder / ".lock", what="the list of profiles"):
        yield


def publish(root: Path, name: str, build: Callable[[Path], None]) -> Profile:
    """Build a profile's home aside and make it appear whole, by one rename.

    Args:
        root: the root home.
        name: a checked name.
        build: fills the hidden folder it is given.

    Raises:
        ProfileError: there is one of that name already.
        StoreError: it cannot be built; nothing of it stays.
    """
    target = home_for_profile(root, name)
    with profiles_lock(root):
        check_free(root, name)
        _drop_stagings(root)
        staging = profiles_root(root) / f".{name}.staging-{os.getpid()}"
        try:
            build(make_folder(staging))
            remove(
                tombstone(root, name)
            )  # first: a crash between the two must not leave a profile that counts as deleted
            os.rename(staging, target)
            fsync_folder(target.parent)
        except OSError as error:
            raise StoreError(f"The profile {name!r} cannot be made: {error.strerror}.") from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return Profile(name=name, home=target)


def _drop_stagings(root: Path) -> None:
    """Remove what builders that were killed left behind. Under the lock nobody else builds."""
    for entry in _entries(root):
        if entry.name.startswith(".") and ".staging-" in entry.name and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)


def create_profile(
    root: Path,
    text: str,
    *,
    model_from: Path | None = None,
    clone: str = "",
    everything: bool = False,
    channels: bool = False,
    skills: bool = True,
    description: str = "",
) -> Profile:
    """Make a new profile.

    Args:
        root: the root home.
        text: its name.
        model_from: home whose `model` settings it starts with; default the root.
        clone: profile to copy from; empty for none.
        everything: copy all of it instead of its settings, identity and skills.
        channels: with a clone, take chat platforms and their tokens along.
        skills: whether the bundled skills may be put into it later; excludes cloning when False.
        description: one line about it.

    Raises:
        ProfileError: the name is impossible, reserved or taken, or options exclude each other.
        StoreError: it cannot be made; nothing of it stays.
    """
    name = check_name(text, new=True)
    source = find_profile(root, clone) if clone else None
    if source is None and (everything or channels):
        raise ProfileError("There is nothing to clone.", advice="Name a profile: --clone-from NAME")
    if source is not None and not skills:
        raise ProfileError("--no-skills and cloning exclude each other.")

    def build(home: Path) -> None:
        if source is not None:
            _clone(source, home, everything=everything, channels=channels)
        fill(home)
        if source is None:
            _copy_model(root if model_from is None else model_from, home)
        if not skills:
            write_bytes(home / NO_SKILLS, b"")
        if description:
            _describe(home, description)

    return publish(root, name, build)


def _clone(source: Profile, home: Path, *, everything: bool, channels: bool) -> None:
    from nedura.profile_clone import clone_into

    clone_into(
        source.home,
        home,
        "all" if everything else "basics",
        from_root=source.name == DEFAULT_PROFILE,
        channels=channels,
    )


def _describe(home: Path, description: str) -> None:
    from nedura.profile_card import edit_card

    edit_card(home, description=description)


def fill(home: Path) -> None:
    """The folders and files that every profile has; what is there stays."""
    for folder in FOLDERS:
        make_folder(home / folder)
    for name, content in ((".env", ENV_HEADER), ("SOUL.md", _SOUL)):
        if not os.path.lexists(home / name):
            write_bytes(home / name, content)


def _copy_model(source: Path, home: Path) -> None:
    """Only the model block: everything else of a profile is its own."""
    try:
        block = read_config(source).get("model")
    except ConfigError:
        return  # a new profile does not fail because the old one's config is broken
    if block is not None:
        edit_config(home, lambda content: content.__setitem__("model", block))
