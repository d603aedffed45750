"""The owner's git checkout, read without running git in it: its configuration may name programs (threats.md 1)."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import RefusedError
from nedura.installs import checkout_head
from nedura.programs import child_environment
from nedura.text import clean
from nedura.update.generation.places import check_private, is_exposed, is_shielded

__all__ = ["Source", "git_dir_of", "read_ref", "read_source"]

_EXEC_KEYS: Final = re.compile(
    r"^(core\.(fsmonitor|hookspath|sshcommand|gitproxy|editor|pager|askpass|alternaterefscommand)"
    r"|filter\..*\.(clean|smudge|process)|diff\.external|diff\..*\.(command|textconv)|merge\..*\.driver"
    r"|remote\..*\.(uploadpack|receivepack|vcs|proxy)|credential(\..*)?\.helper|gpg(\..*)?\.program|include(if\..*)?\.path"
    r"|sequence\.editor|uploadpack\.packobjectshook|submodule\..*\.update|protocol(\..*)?\.allow|url\..*\.(insteadof|pushinsteadof))\Z"
)
_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_SETTINGS: Final = ("core.autocrlf", "core.filemode")
MAX_CONFIG: Final = 1024 * 1024


@attrs.frozen(kw_only=True)
class Source:
    """What we know of a checkout.

    Attributes:
        checkout: its real path.
        git_dir: the checkout's own git folder.
        common_dir: the repository's folder (another one in a linked worktree).
        head: commit id that is checked out, empty before the first commit.
        branch: branch that is checked out, empty when detached.
        remote_name: name of the remote that the branch follows, empty without one.
        remote_url: its address as written.
        remote_branch: branch of that remote that is followed.
        remotes: name and address of each of its remotes.
        upstream_url: address of the remote named `upstream`: who forks a project keeps the original there.
        tracking: commit id that the checkout last saw of that branch, empty when it never looked.
        exec_keys: configuration keys that name programs; none of them ever runs.
        alternates: object folders that our repository may read.
        shallow: the history is cut.
        settings: settings that are plain data: line ends, file modes.
    """

    checkout: Path
    git_dir: Path
    common_dir: Path
    head: str
    branch: str
    remote_name: str = ""
    remote_url: str = attrs.field(default="", repr=False)
    remote_branch: str = ""
    remotes: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    upstream_url: str = attrs.field(default="", repr=False)
    tracking: str = ""
    exec_keys: tuple[str, ...] = ()
    alternates: tuple[Path, ...] = ()
    shallow: bool = False
    settings: tuple[tuple[str, str], ...] = ()

    def last_seen(self, branch: str, remote: str = "") -> str:
        """Commit id that the checkout last saw of any branch of a remote, empty when it never looked.

        Args:
            branch: its name there.
            remote: the remote's name; default the one of the branch that is checked out.
        """
        remote = remote or self.remote_name
        if not remote or not branch:
            return ""
        return read_ref(self.common_dir, f"refs/remotes/{remote}/{branch}")

    def address(self, remote: str) -> str:
        """Address of a remote as written; where there is none of that name, of the one that the checked-out branch follows."""
        return dict(self.remotes).get(remote, self.remote_url)

    @property
    def default_branch(self) -> str:
        """The remote's own default branch as the clone noted it, else `main` when the remote had one; empty when neither is known."""
        remote = f"refs/remotes/{self.remote_name}/"
        try:
            noted = _short_text(self.common_dir / remote / "HEAD") if self.remote_name else ""
        except OSError:
            noted = ""
        if noted.startswith(f"ref: {remote}"):
            return noted.removeprefix(f"ref: {remote}")
        return "main" if self.last_seen("main") else ""


def _refuse(checkout: Path, why: str, advice: str = "") -> RefusedError:
    return RefusedError(f"{clean(str(checkout), 300)} cannot be used as a source: {why}.", advice=advice)


def git_dir_of(checkout: Path) -> tuple[Path, Path]:
    """The git folder and the common folder of a checkout.

    Raises:
        RefusedError: `.git` is missing, a link, or points to a folder that is not ours alone.
    """
    dot = checkout / ".git"
    try:
        info = os.lstat(dot)
    except OSError as error:
        raise _refuse(checkout, "it has no .git", "Name a git checkout.") from error
    if stat.S_ISDIR(info.st_mode):
        git_dir = dot
    elif stat.S_ISREG(info.st_mode):
        git_dir = _pointed(checkout, dot)
    else:
        raise _refuse(checkout, "its .git is a link or a special file")
    common = git_dir
    if (git_dir / "commondir").is_file():
        common = Path(os.path.realpath(git_dir / _short_text(git_dir / "commondir")))
    for folder in {git_dir, common}:
        owner = os.stat(folder).st_uid
        if owner != os.geteuid():
            raise _refuse(checkout, f"its git folder belongs to user {owner}", "Run it as that user.")
        check_private(folder)
    return git_dir, common


def _short_text(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(4096).decode("utf-8", "surrogateescape").strip()


def _pointed(checkout: Path, dot: Path) -> Path:
    text = _short_text(dot)
    if not text.startswith("gitdir:"):
        raise _refuse(checkout, "its .git file names no folder")
    target = Path(os.path.realpath(checkout / text.removeprefix("gitdir:").strip()))
    if not target.is_dir():
        raise _refuse(checkout, "its .git file points nowhere")
    return target


def _alternates(common: Path) -> tuple[Path, ...]:
    """Object folders of the repository: its own and the ones it borrows from, resolved, at most five deep as git does."""
    found: list[Path] = []
    queue = [(common / "objects", 0)]
    while queue:
        folder, depth = queue.pop(0)
        folder = Path(os.path.realpath(folder))
        if folder in found or depth > 5 or not folder.is_dir():
            continue
        if os.stat(folder).st_uid not in (0, os.geteuid()):
            who = f"{os.geteuid()}:{os.getegid()}"
            raise RefusedError(
                f"The object folder {clean(str(folder), 300)} belongs to another user.",
                advice=f"If it is yours: sudo chown -R {who} {shlex.quote(clean(str(folder), 300))}",
            )
        _check_objects(folder)
        found.append(folder)
        listed = folder / "info" / "alternates"
        if listed.is_file():
            lines = _short_text(listed).splitlines()
            queue += [(folder / line, depth + 1) for line in lines if line and not line.startswith("#")]
    return tuple(found)


def _check_objects(folder: Path) -> None:
    """Git believes the name of an object in a pack: who can write there decides what a commit holds."""
    if is_shielded(folder / "pack"):
        return
    with os.scandir(folder) as entries:
        inside = [Path(entry.path) for entry in entries if entry.is_dir()]
    for place in (folder, *inside):
        if is_exposed(os.stat(place)):
            raise RefusedError(
                f"The object folder {clean(str(place), 300)} can be written by other users.",
                advice=f"Run: chmod -R go-w {clean(str(folder), 300)}",
            )


def _config(program: str, file: Path, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """All (key, value) of one configuration file; includes are not followed and nothing in it runs."""
    if not file.is_file() or file.stat().st_size > MAX_CONFIG:
        raise RefusedError(f"{clean(str(file), 300)} is missing or too large.")
    try:
        answer = subprocess.run(
            [program, "config", "--file", str(file), "--no-includes", "--list", "-z"],
            cwd="/",
            env=child_environment(environ, GIT_CEILING_DIRECTORIES="/", GIT_CONFIG_NOSYSTEM="1", LC_ALL="C"),
            capture_output=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RefusedError(
            f"{clean(str(file), 300)} cannot be read: git did not answer within 10 s.",
            advice=f"Try it: {clean(program, 200)} --version",
        ) from error
    if answer.returncode != 0:
        said = clean(answer.stderr.decode("utf-8", "replace").strip().partition("\n")[0], 200)
        raise RefusedError(
            f"{clean(str(file), 300)} cannot be read by git{f' (git: {said})' if said else ''}.",
            advice=f"Try it: {clean(program, 200)} --version",
        )
    pairs = []
    for item in answer.stdout.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = item.partition("\n")
        if key:
            pairs.append((key, value))
    return pairs


def _remotes(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Name -> address of each remote."""
    return {
        key[len("remote.") : -len(".url")]: value
        for key, value in pairs
        if key.startswith("remote.") and key.endswith(".url")
    }


def _followed(pairs: list[tuple[str, str]], urls: Mapping[str, str], branch: str) -> tuple[str, str, str]:
    """(remote name, url, branch of the remote): the branch's own upstream, else origin, else the only remote."""
    values = dict(pairs)
    name = values.get(f"branch.{branch}.remote", "") if branch else ""
    if name not in urls:
        name = "origin" if "origin" in urls else next(iter(urls), "") if len(urls) == 1 else ""
    merge = values.get(f"branch.{branch}.merge", "").removeprefix("refs/heads/") if branch else ""
    return name, urls.get(name, ""), merge or branch


def read_ref(common_dir: Path, ref: str) -> str:
    """Commit id of a ref, from the repository's files; empty when there is none of that name."""
    if ".." in ref or ref.startswith("/"):
        return ""
    try:
        text = _short_text(common_dir / ref)
    except OSError:
        text = ""
    if _ID.match(text):
        return text
    try:
        with open(common_dir / "packed-refs", "rb") as file:
            lines = file.read(32 << 20).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    found = [line.partition(" ")[0] for line in lines if line.partition(" ")[2] == ref]
    return found[0] if found and _ID.match(found[0]) else ""


def read_source(checkout: Path, program: str, environ: Mapping[str, str] | None = None) -> Source:
    """Everything an update needs to know of a checkout.

    Args:
        checkout: any path to it.
        program: absolute path of git.
        environ: where children's variables come from.

    Raises:
        RefusedError: it is no checkout, or not ours alone.
    """
    real = Path(os.path.realpath(checkout))
    if not real.is_dir():
        raise _refuse(checkout, "it is no folder", "Name a git checkout.")
    if any("\udc80" <= letter <= "\udcff" for letter in str(real)):  # no record of ours could name it
        raise _refuse(checkout, "its path is not UTF-8", "Rename the folder.")
    check_private(real)
    git_dir, common = git_dir_of(real)
    pairs = _config(program, common / "config", os.environ if environ is None else environ)
    head = _short_text(git_dir / "HEAD")
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
    remotes = _remotes(pairs)
    name, url, followed = _followed(pairs, remotes, branch)
    return Source(
        checkout=real,
        git_dir=git_dir,
        common_dir=common,
        head=checkout_head(real),
        branch=branch,
        remote_name=name,
        remote_url=url,
        remote_branch=followed,
        remotes=tuple(remotes.items()),
        upstream_url=dict(pairs).get("remote.upstream.url", "") if name != "upstream" else "",
        tracking=read_ref(common, f"refs/remotes/{name}/{followed}") if name and followed else "",
        exec_keys=tuple(sorted({key for key, _ in pairs if _EXEC_KEYS.match(key)})),
        alternates=_alternates(common),
        shallow=(common / "shallow").is_file(),
        settings=tuple((key, value) for key, value in pairs if key in _SETTINGS),
    )
