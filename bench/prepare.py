"""Prepare against `git fetch` + `git reset --hard` of the same change, in one run; and a small update.

Goals (issue 7): a 3,000-commit update of a 2,000-file tree with unchanged dependencies, bytecode included, at most 3 x of plain git;
a 50-file update under 0.4 s. "Of the same with compiled bytecode" can be read in two ways. Judged is the harder one, git without any
bytecode (`ratio`); `ratio_compiled` is the other one, git and then the same compilation.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from pathlib import Path

from bench._repos import grow, make_tree, scratch, tell, timed
from bench._sealed import prepare_once
from nedura.installs import find_installs
from nedura.testing.installs import TOY, Site, git
from nedura.update.commit.sealed import commit_sealed
from nedura.update.generation.install import install_checkout


def site_of(folder: Path, files: int) -> Site:
    origin = make_tree(folder / "origin", files)
    checkout = origin.clone(folder / "source")
    install_checkout(checkout, folder / "home", product=TOY, environment="none")
    paths = find_installs(folder / "home")[0]
    return Site(origin=origin, checkout=checkout, home=folder / "home", paths=paths, product=TOY)


def large(files: int, commits: int, rounds: int) -> tuple[float, float, float]:
    """Medians of plain git, of prepare + commit, and of the part of it that compiles."""
    plain, sealed, compiling = [], [], []
    for _ in range(rounds):
        with scratch() as folder:
            site = site_of(folder, files)
            peer = site.origin.clone(folder / "peer")
            grow(site.origin, commits, files)
            plain.append(timed(functools.partial(_plain, peer)))

            def update(site: Site = site) -> None:
                run = prepare_once(site)
                assert run.candidate is not None
                assert run.changed
                commit_sealed(site.paths, run.candidate)

            sealed.append(timed(update))
            compiling.append(_compile_alone(site))
    return statistics.median(plain), statistics.median(sealed), statistics.median(compiling)


def _plain(peer: Path) -> None:
    git(peer, "fetch", "-q")
    git(peer, "reset", "-q", "--hard", "origin/main")


def _compile_alone(site: Site) -> float:
    """Seconds that compiling the same files takes by itself, for the explanation of the ratio."""
    from nedura.update.generation.interpreter import base_python, inspect
    from nedura.update.generation.tree import compile_tree

    current = site.paths.pointed()
    assert current is not None
    tree = site.origin.folder
    names = [str(path.relative_to(tree)) for path in tree.rglob("toy/p*/*.py")]
    return timed(lambda: compile_tree(tree, names, inspect(base_python()), None))


def small(files: int, changed: int, rounds: int) -> float:
    """Median of a prepare that changes few files."""
    found = []
    with scratch() as folder:
        site = site_of(folder, files)
        for number in range(rounds):
            git(site.origin.folder, "checkout", "-q", "main")
            paths = sorted(site.origin.folder.glob("toy/p*/*.py"))[:changed]
            for path in paths:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(f"ROUND = {number}\n")
            git(site.origin.folder, "commit", "-q", "-a", "-m", f"round {number}")

            def update() -> None:
                run = prepare_once(site)
                assert run.candidate is not None
                commit_sealed(site.paths, run.candidate)

            found.append(timed(update))
    return statistics.median(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--changed", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    plain, sealed, compiling = large(args.files, args.commits, args.rounds)
    few = small(args.files, args.changed, max(3, args.rounds))
    ratio = sealed / plain
    facts: dict[str, float | int | str | bool] = {
        "git_s": round(plain, 3), "sealed_s": round(sealed, 3), "ratio": round(ratio, 2), "goal_ratio": 3.0,
        "ratio_compiled": round(sealed / (plain + compiling), 2),
        "compile_alone_s": round(compiling, 3), "small_s": round(few, 3), "goal_small_s": 0.4,
    }  # fmt: skip
    return tell("prepare", facts, ratio <= 3.0 and few < 0.4)


if __name__ == "__main__":
    sys.exit(main())
