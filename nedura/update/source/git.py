"""The one runner of git: allow-listed environment, one allowed protocol, never inside the owner's checkout (threats.md 1)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import UpdateError
from nedura.programs import child_environment, find_program
from nedura.text import clean, redact
from nedura.update.bounded import run_bounded
from nedura.update.source.fetch_failures import classify_fetch

__all__ = ["Git", "GitAnswer", "commit_id", "find_git", "is_commit_id", "knows_merges"]

_ID: Final = re.compile(r"^[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_NO_OWNER_CONFIG: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_ALWAYS: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "Never",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_PROTOCOL_FROM_USER": "0",
}
_SAFE: Final = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "submodule.recurse=false",
)


@attrs.frozen(kw_only=True)
class GitAnswer:
    """What git said.

    Attributes:
        code: exit code; negative when a signal or our time limit ended it.
        out: standard output.
        err: standard error, decoded, credentials masked.
        timed_out: our time limit ended it.
    """

    code: int
    out: bytes
    err: str
    timed_out: bool = False

    @property
    def text(self) -> str:
        """Standard output as text without its last line end."""
        return self.out.decode("utf-8", "surrogateescape").rstrip("\n")

    @property
    def first_error(self) -> str:
        """The first line of standard error that says what went wrong."""
        lines = [clean(line) for line in self.err.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:", "remote:"))]
        return (told or lines or ["git said nothing"])[0]


def is_commit_id(text: str) -> bool:
    """Whether a text is a full object id (40 or 64 hex digits)."""
    return bool(_ID.match(text))


def commit_id(text: str) -> str:
    """A full commit id, or an error: every move names a commit id, never a ref.

    Raises:
        UpdateError: it is something else.
    """
    if not is_commit_id(text):
        raise UpdateError(f"{clean(text, 80)} is no commit id.", stop_class="git")
    return text


def find_git(environ: Mapping[str, str] | None = None) -> str:
    """Absolute path of git.

    Raises:
        UpdateError: there is none on the safe part of PATH.
    """
    program = find_program("git", environ)
    if program is None:
        raise UpdateError(
            "git is missing.", stop_class="git", advice="Install it, for example: apt-get install git"
        )
    return program


def knows_merges(program: str, environ: Mapping[str, str]) -> bool:
    """Whether git can merge trees aside (2.38 and newer), by its own words; needs no repository.

    Args:
        program: absolute path of git.
        environ: where the allow-listed variables come from.
    """
    env = child_environment(environ, LC_ALL="C", **_NO_OWNER_CONFIG)
    done = run_bounded([program, "merge-tree", "-h"], env=env, timeout=10)
    return b"--write-tree" in done.out + done.err


@attrs.frozen(kw_only=True)
class Git:
    """Runs git on one bare repository of ours.

    Attributes:
        program: absolute path of git.
        repo: our bare repository.
        objects: folder that new objects go to instead of the repository's own: a reader leaves no trace.
        environ: where the allow-listed variables come from.
    """

    program: str
    repo: Path
    objects: Path | None = None
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        index: Path | None = None,
        work_tree: Path | None = None,
        protocol: str = "",
        owner_config: bool = False,
        timeout: float = 120.0,
        ok: Sequence[int] = (0,),
        extra: Mapping[str, str] | None = None,
    ) -> GitAnswer:
        """Run one git command; blocks the thread.

        Args:
            args: command and arguments, ours alone: text of others only as a full ref, an id, or behind `--`.
            stdin: bytes for standard input; else it is closed.
            index: temporary index file.
            work_tree: work tree that is written, outside the repository.
            protocol: the one transport git may use; none by default.
            owner_config: read the owner's global and system configuration (fetch alone: proxies, credentials).
            timeout: seconds; the whole process group is killed after it.
            ok: exit codes that are no error.
            extra: further variables.

        Raises:
            UpdateError: another exit code, or the time limit.
        """
        answer = self._spawn(
            args, self._environment(index, work_tree, protocol, owner_config, extra), stdin, timeout
        )
        if answer.code not in ok:
            raise _failure(_command(args), answer, timeout)
        return answer

    def line(self, *args: str, **options: object) -> str:
        """`run`, and its output as text."""
        return self.run(*args, **options).text  # type: ignore[arg-type]

    def _environment(
        self,
        index: Path | None,
        work_tree: Path | None,
        protocol: str,
        owner_config: bool,
        extra: Mapping[str, str] | None,
    ) -> dict[str, str]:
        env = child_environment(self.environ, keep=("SSH_AUTH_SOCK",), **_ALWAYS)
        env |= {"GIT_DIR": str(self.repo), "GIT_ALLOW_PROTOCOL": protocol or "none"}
        if not owner_config:
            env |= _NO_OWNER_CONFIG
        if index is not None:
            env["GIT_INDEX_FILE"] = str(index)
        if work_tree is not None:
            env["GIT_WORK_TREE"] = str(work_tree)
        if self.objects is not None:
            env["GIT_OBJECT_DIRECTORY"] = str(self.objects)
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.repo / "objects")
        return env | dict(extra or {})

    def _spawn(
        self, args: Sequence[str], env: Mapping[str, str], stdin: bytes | None, timeout: float
    ) -> GitAnswer:
        done = run_bounded([self.program, *_SAFE, *args], env=env, stdin=stdin, timeout=timeout)
        err = redact(done.err.decode("utf-8", "replace"))
        return GitAnswer(code=done.code, out=done.out, err=err, timed_out=done.timed_out)


def _command(args: Sequence[str]) -> str:
    """The command among git's arguments: settings for it come before."""
    place = 0
    while place < len(args) - 2 and args[place] == "-c":
        place += 2
    return args[place]


def _failure(command: str, answer: GitAnswer, timeout: float) -> UpdateError:
    """What a failed command means, where git's words say more than that it failed."""
    if answer.timed_out:
        return UpdateError(f"git {command} took longer than {timeout:.0f} s.", stop_class="git")
    failure = classify_fetch(answer.err)
    if failure.token == "broken_objects":
        return UpdateError(
            f"Objects that git needs are damaged (git {command}: {answer.first_error}).",
            stop_class="broken_objects",
            advice="Nothing was changed. In the checkout, look with: git fsck --full; get them again with: git fetch --refetch",
        )
    known = {"disk_full": "disk_full", "permission": "permission_denied"}
    return UpdateError(
        f"git {command} failed: {answer.first_error}",
        stop_class=known.get(failure.token, "git"),
        advice=failure.advice if failure.token in known else "",
    )


def _quoted(path: Path) -> str:
    """A path for git's colon-separated list: quoted where it must be."""
    text = str(path)
    if ":" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
