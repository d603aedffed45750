"""`update` already up to date against the plain `git fetch` of that repository. Goal: at most the fetch + 0.4 s.

Measures what decides it (prepare: fetch, edits, inputs, every byte of what is current) and, through the launcher, the whole command;
the command with 1, 10 and 100 profiles, too: no worse than linear.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from bench._repos import grow, make_tree, quiet, scratch, tell, timed
from bench._sealed import prepare_once
from nedura.installs import find_installs
from nedura.testing.installs import TOY, Site, git, make_site, write_files
from nedura.update.generation.install import install_checkout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with scratch() as folder:
        origin = make_tree(folder / "origin", args.files)
        grow(origin, args.commits, args.files)
        checkout = origin.clone(folder / "source")
        install_checkout(checkout, folder / "home", product=TOY, environment="none")
        site = Site(
            origin=origin,
            checkout=checkout,
            home=folder / "home",
            paths=find_installs(folder / "home")[0],
            product=TOY,
        )
        fetch = statistics.median(timed(lambda: git(checkout, "fetch", "-q")) for _ in range(args.rounds))
        noop = statistics.median(timed(lambda: prepare_once(site)) for _ in range(args.rounds))
    with scratch() as folder:
        own = make_site(folder, "own")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        small_fetch = statistics.median(
            timed(lambda: git(own.checkout, "fetch", "-q")) for _ in range(args.rounds)
        )
        command = [str(own.launcher), "update", "--no-backup", "--yes"]
        whole = statistics.median(timed(quiet(command, env)) for _ in range(args.rounds))
        each = {1: whole}
        for count in (10, 100):
            homes = {f"profiles/p{i:03}/config.yaml": "model:\n  default: x\n" for i in range(count - 1)}
            write_files(own.home, homes)
            each[count] = statistics.median(timed(quiet(command, env)) for _ in range(args.rounds))
    facts: dict[str, float | int | str | bool] = {
        "fetch_s": round(fetch, 3), "prepare_s": round(noop, 3), "over_s": round(noop - fetch, 3),
        "command_fetch_s": round(small_fetch, 3), "command_s": round(whole, 3), "command_over_s": round(whole - small_fetch, 3),
        **{f"profiles_{count}_s": round(value, 3) for count, value in each.items()},
        "growth_10_to_100": round(each[100] / each[10], 2), "goal_over_s": 0.4,
    }  # fmt: skip
    linear = each[100] / each[10] <= 10 * 1.25
    return tell("update_noop", facts, noop - fetch <= 0.4 and whole - small_fetch <= 0.4 and linear)


if __name__ == "__main__":
    sys.exit(main())
