r"""Real installs for tests, fast: a tiny git origin, a clone of it, and a sealed install that shares the running Python's packages.

::

    site = make_site(tmp_path)                       # origin + clone + sealed install of a toy tree
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    ... run an update with site.paths, site.product ...
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import attrs

import nedura
from nedura.installs import InstallPaths
from nedura.product import NEDURA, Product
from nedura.programs import child_environment, find_program
from nedura.records import make_folder, write_bytes
from nedura.update.generation.install import install_checkout

__all__ = ["TOY", "TOY_FILES", "Origin", "Site", "git", "make_origin", "make_site", "own_files"]

Content = str | bytes | None

TOY: Final = attrs.evolve(
    NEDURA,
    name="toy",
    command="toy",
    main_modules=("toy.main",),
    roots=("",),
    environment="none",
    launch_modules=("toy.main",),
)
"""A product whose whole code is one small package."""

TOY_FILES: Final[Mapping[str, Content]] = {
    "pyproject.toml": '[project]\nname = "toy"\nversion = "1.0"\nrequires-python = ">=3.11"\n',
    "toy/__init__.py": "",
    "toy/value.py": "VALUE = 1\n",
    "toy/main.py": (
        "import sys\nimport _generation\nfrom toy.value import VALUE\n"
        'print(VALUE, _generation.GENERATION, *sys.argv[1:], sep="\\n")\n'
    ),
    ".gitignore": "__pycache__/\n*.pyc\n",
}

EXECUTABLE: Final = ("run",)

_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *args: str, stdin: bytes | None = None, check: bool = True, **extra: str) -> str:
    """Run plain git in a folder, as a person would; returns its output.

    Raises:
        AssertionError: it failed (with `check`).
    """
    program = find_program("git")
    assert program is not None, "git is missing"
    answer = subprocess.run(
        [program, *args],
        cwd=folder,
        env={**child_environment(), **_IDENTITY, **extra},
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if check and answer.returncode != 0:
        raise AssertionError(f"git {' '.join(args)}: {answer.stderr.decode('utf-8', 'replace')}")
    return answer.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def write_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files below a folder; None removes one."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        make_folder(path.parent)
        mode = 0o755 if name in EXECUTABLE else 0o644
        write_bytes(path, content.encode() if isinstance(content, str) else content, mode)


@attrs.frozen
class Origin:
    """A repository that is published from: a work tree whose branch `main` others fetch.

    Attributes:
        folder: its path, which is also its address.
    """

    folder: Path

    @property
    def head(self) -> str:
        """Commit id of its tip."""
        return git(self.folder, "rev-parse", "HEAD")

    def commit(self, files: Mapping[str, Content], message: str = "change") -> str:
        """Publish a change; returns the commit id."""
        write_files(self.folder, files)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", message)
        return self.head

    def clone(self, folder: Path, *args: str) -> Path:
        """A person's clone of it."""
        git(self.folder, "clone", "-q", *args, f"file://{self.folder}", str(folder))
        return folder


def make_origin(folder: Path, files: Mapping[str, Content] = TOY_FILES) -> Origin:
    """A new origin with one commit."""
    make_folder(folder)
    git(folder, "init", "-q", "-b", "main")
    origin = Origin(folder)
    origin.commit(files, "first")
    return origin


@functools.cache
def own_files() -> Mapping[str, Content]:
    """The product's own tree, as far as it runs: packages, renderers, lock file, project table."""
    root = Path(nedura.__file__).parents[1]
    found: dict[str, Content] = {}
    for top in ("nedura", "renderers/cli/nedura_cli", "renderers/gateway/nedura_gateway"):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found[str(path.relative_to(root))] = path.read_bytes()
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", ".gitignore"):
        if (root / name).is_file():
            found[name] = (root / name).read_bytes()
    return found


@attrs.frozen(kw_only=True)
class Site:
    """An origin, a clone of it, and a sealed install of that clone.

    Attributes:
        origin: where updates come from.
        checkout: the owner's clone.
        home: root home.
        paths: the install.
        product: whose tree it is; `environment="none"`.
    """

    origin: Origin
    checkout: Path
    home: Path
    paths: InstallPaths
    product: Product

    @property
    def launcher(self) -> Path:
        """The command."""
        return self.paths.launcher(self.product.command)

    def run(self, *args: str, timeout: float = 60, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run the launcher as a person would."""
        return subprocess.run(
            [str(self.launcher), *args],
            env={**child_environment(), **extra},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_site(
    folder: Path,
    tree: Literal["toy", "own"] | Mapping[str, Content] = "toy",
    *,
    product: Product | None = None,
    clone: tuple[str, ...] = (),
) -> Site:
    """Make an origin, clone it and install the clone sealed, without building an environment.

    Args:
        folder: where everything goes (own temporary folder of the test).
        tree: `toy` (a tiny package), `own` (this very code) or files.
        product: default TOY for the toy and for files, NEDURA for `own`; its environment becomes `none`.
        clone: further arguments of `git clone`.
    """
    files = TOY_FILES if tree == "toy" else own_files() if tree == "own" else tree
    product = product or (NEDURA if tree == "own" else TOY)
    product = attrs.evolve(product, environment="none")
    origin = make_origin(folder / "origin", files)
    checkout = origin.clone(folder / "source", *clone)
    home = folder / "home"
    done = install_checkout(checkout, home, product=product, python=sys.executable)
    return Site(
        origin=origin,
        checkout=checkout,
        home=home,
        paths=InstallPaths(home, done.install_id),
        product=product,
    )
