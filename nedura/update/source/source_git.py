"""The one runner for the few writes into the owner's checkout: nothing that its configuration names may run (threats.md 1).

Plumbing only, by commit id. Standard library only, because the recovery of a torn checkout uses it when nothing else can be imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nedura.programs import child_environment
from nedura.update.bounded import run_bounded

__all__ = ["EXEC_KEYS", "Answer", "SourceGit", "SourceGitError", "neutral"]

IDENTITY: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "nedura update"), ("EMAIL", "nedura@localhost"))
}
_ENVIRONMENT: Final = {
    **IDENTITY,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_FIXED: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.bare=false",
    "core.untrackedCache=false",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "merge.default=text",
    "merge.autoStash=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "core.fsync=committed,index,reference",
    "core.fsyncMethod=fsync",
    "core.quotePath=false",
)
EXEC_KEYS: Final = re.compile(
    r"^(?:core\.(?:sshcommand|gitproxy|editor|pager|askpass|alternaterefscommand)"
    r"|filter\..*\.(?:clean|smudge|process|required)|diff\.external|diff\..*\.(?:command|textconv)|merge\..*\.driver"
    r"|credential(?:\..*)?\.helper|gpg(?:\..*)?\.program|sequence\.editor|uploadpack\.packobjectshook"
    r"|branch\..*\.mergeoptions|pull\.twohead|interactive\.difffilter|pager\..*)\Z"
)
"""Keys whose value git may run. `include.path` is followed by git itself, so what it adds is in the listing that we neutralise."""
_OWNER_KEYS: Final = (
    r"^core\.(autocrlf|eol|safecrlf|excludesfile|ignorecase|filemode|symlinks|precomposeunicode)$"
)


class SourceGitError(Exception):
    """Raised when git in the owner's checkout failed.

    Attributes:
        command: its subcommand.
        code: exit code.
        reason: first telling line of its errors.
    """

    def __init__(self, command: str, code: int, reason: str) -> None:
        super().__init__(f"git {command} failed: {reason}")
        self.command = command
        self.code = code
        self.reason = reason


class Answer(NamedTuple):
    """What git said.

    Attributes:
        code: exit code.
        out: standard output.
        err: standard error.
    """

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output without its last line end."""
        return self.out.decode("utf-8", "surrogateescape").rstrip("\n")

    @property
    def items(self) -> list[str]:
        """Standard output split at NUL."""
        return [item for item in self.out.decode("utf-8", "surrogateescape").split("\0") if item]

    @property
    def reason(self) -> str:
        """The first line of its errors that says something."""
        lines = [
            "".join(ch for ch in line if ch.isprintable())[:200]
            for line in self.err.splitlines()
            if line.strip()
        ]
        told = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return (told or lines or ["git said nothing"])[0]


def neutral(keys: Sequence[str]) -> Iterator[str]:
    """`-c` settings that take the power from keys which name programs."""
    for key in keys:
        if key.startswith("filter.") and key.endswith(".required"):
            yield f"{key}=false"
        elif key.startswith("merge.") and key.endswith(".driver"):
            yield f"{key}=false"  # the program `false`: a conflict, never a run of what was named
        else:
            yield f"{key}="


class SourceGit:
    """Runs git on the owner's checkout, neutralised.

    Args:
        program: absolute path of git.
        checkout: its real path.
        git_dir: its own git folder.
        environ: where the allow-listed variables come from.
    """

    def __init__(
        self,
        program: str,
        checkout: str | os.PathLike[str],
        git_dir: str | os.PathLike[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.program = program
        self.checkout = os.fspath(checkout)
        self.git_dir = os.fspath(git_dir)
        self._environ = dict(os.environ if environ is None else environ)
        self._options: tuple[str, ...] | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The `-c` settings for this checkout, read once from its whole configuration (listing runs nothing)."""
        if self._options is None:
            listed = self._spawn(("config", "--list", "--name-only", "-z"), self._fixed(), None, 30.0, None)
            keys = sorted({key for key in listed.items if EXEC_KEYS.match(key.lower())})
            settings = [*self._owner_settings(), *neutral(keys)]
            self._options = (*self._fixed(), *(part for one in settings for part in ("-c", one)))
        return self._options

    @staticmethod
    def _fixed() -> tuple[str, ...]:
        return tuple(part for one in _FIXED for part in ("-c", one))

    def _owner_settings(self) -> list[str]:
        """Harmless settings of the owner's global configuration that decide what counts as changed; the checkout's own win."""
        env = child_environment(self._environ, LC_ALL="C", GIT_CONFIG_NOSYSTEM="1")
        found = run_bounded(
            [self.program, "config", "--global", "--includes", "-z", "--get-regexp", _OWNER_KEYS],
            env=env,
            timeout=10,
        )
        own = self._spawn(
            ("config", "--local", "--name-only", "-z", "--get-regexp", _OWNER_KEYS), (), None, 10.0, None
        )
        settings = []
        for item in found.out.decode("utf-8", "surrogateescape").split("\0"):
            key, _, value = item.partition("\n")
            if key and key not in own.items:
                settings.append(f"{key}={value}")
        return settings

    def run(
        self,
        *args: str,
        stdin: bytes | None = None,
        index: str | os.PathLike[str] | None = None,
        timeout: float = 300.0,
        ok: Sequence[int] = (0,),
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run one command. Blocks the thread.

        Args:
            args: command and arguments, ours alone: text of others only as a full ref, an id, or behind `--`.
            stdin: bytes for standard input.
            index: temporary index file.
            timeout: seconds; its whole group is ended after it.
            ok: exit codes that are no error.
            extra: further variables.

        Raises:
            SourceGitError: another exit code.
        """
        variables = dict(extra or {})
        if index is not None:
            variables["GIT_INDEX_FILE"] = os.fspath(index)
        answer = self._spawn(args, self.options, stdin, timeout, variables)
        if answer.code not in ok:
            raise SourceGitError(args[0], answer.code, answer.reason)
        return answer

    def text(self, *args: str, ok: Sequence[int] = (0,)) -> str:
        """`run`, and its output as text."""
        return self.run(*args, ok=ok).text

    def _spawn(
        self,
        args: Sequence[str],
        options: Sequence[str],
        stdin: bytes | None,
        timeout: float,
        extra: Mapping[str, str] | None,
    ) -> Answer:
        env = child_environment(
            self._environ, **_ENVIRONMENT, GIT_DIR=self.git_dir, GIT_WORK_TREE=self.checkout, **(extra or {})
        )
        done = run_bounded(
            [self.program, *options, *args],
            env=env,
            cwd=self.checkout,
            stdin=stdin,
            timeout=timeout,
            umask=-1,
        )
        err = done.err.decode("utf-8", "replace")
        return Answer(done.code, done.out, "it took too long" if done.timed_out else err)
