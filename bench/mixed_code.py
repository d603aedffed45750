"""Mixed code: members that import lazily across a switch, with a collector after each flip.

Goal: 20 members x 50 lazy imports, 0 failures; no tree removed while held, none kept once free and out of grace. The peer in the same
run is `git reset --hard` under the same members.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

from bench._repos import scratch, tell
from bench._sealed import prepare_once
from nedura.clock import SystemClock
from nedura.testing.installs import TOY_FILES, Origin, Site, git, make_site
from nedura.update.commit.sealed import commit_sealed
from nedura.update.generation.pm import collect_garbage

MEMBER = """
import importlib, os, sys
import toy.release
print("up", flush=True)
bad = 0
for number in range(int(sys.argv[1])):
    sys.stdin.readline()
    try:
        module = importlib.import_module(f"toy.lazy{number}")
        bad += module.RELEASE != toy.release.RELEASE
    except Exception:
        bad += 1
    print(bad, flush=True)
"""


def files(release: int, lazies: int) -> dict[str, str | bytes | None]:
    """A tree in which every lazy module must match its package; each release renames what it brings."""
    own = {f"toy/lazy{i}.py": f"from toy.part{release}_{i} import RELEASE\n" for i in range(lazies)}
    parts = {f"toy/part{release}_{i}.py": f"RELEASE = {release}\n" for i in range(lazies)}
    gone = {f"toy/part{release - 1}_{i}.py": None for i in range(lazies)} if release > 1 else {}
    return {"toy/release.py": f"RELEASE = {release}\n", **own, **parts, **gone}


def start(python: str, lazies: int, path: Path | None) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], **({"PYTHONPATH": str(path)} if path else {})}
    flags = [] if path else ["-I"]
    return subprocess.Popen(
        [python, *flags, "-B", "-c", MEMBER, str(lazies)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def step(members: list[subprocess.Popen[str]]) -> list[int]:
    """One lazy import in every member; returns each one's failures so far."""
    for member in members:
        assert member.stdin is not None
        member.stdin.write("\n")
        member.stdin.flush()
    return [int(member.stdout.readline()) for member in members if member.stdout is not None]


def wait_up(members: list[subprocess.Popen[str]]) -> None:
    for member in members:
        assert member.stdout is not None
        member.stdout.readline()


def gc(site: Site) -> tuple[tuple[str, ...], dict[str, str]]:
    async def work() -> tuple[tuple[str, ...], dict[str, str]]:
        async with aclosing(
            collect_garbage(site.paths, SystemClock(), dict(os.environ), grace=0.0)
        ) as events:
            async for event in events:
                return event.removed, dict(event.kept)
        return (), {}

    return asyncio.run(work())


def sealed(folder: Path, count: int, lazies: int, switches: int) -> dict[str, float | int | str | bool]:
    site = make_site(folder, {**TOY_FILES, **files(1, lazies)})
    held = site.paths.pointed()
    assert held is not None
    members = [start(str(held / "venv/bin/python"), lazies, None) for _ in range(count)]
    wait_up(members)
    failures = [0] * count
    every = max(1, lazies // switches)
    removed_held = 0
    for number in range(lazies):
        if number % every == every // 2:
            release = number // every + 2
            site.origin.commit(files(release, lazies), f"release {release}")
            run = prepare_once(site)
            assert run.candidate is not None
            commit_sealed(site.paths, run.candidate)
            removed, _ = gc(site)
            removed_held += held.name in removed
        failures = step(members)
    for member in members:
        member.communicate()
    removed, kept = gc(site)
    kept_free = [name for name, why in kept.items() if why not in ("current", "previous")]
    return {
        "members": count, "lazy_imports": count * lazies, "failures": sum(failures), "removed_while_held": removed_held,
        "kept_once_free": len(kept_free), "removed_in_the_end": len(removed),
    }  # fmt: skip


def in_place(folder: Path, count: int, lazies: int, switches: int) -> int:
    """The same with `git reset --hard` under running members."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    origin = Origin(folder)
    commits = [origin.commit({**TOY_FILES, **files(1, lazies)}, "1")]
    commits += [origin.commit(files(release, lazies), str(release)) for release in range(2, switches + 2)]
    git(folder, "reset", "-q", "--hard", commits[0])
    members = [start(sys.executable, lazies, folder) for _ in range(count)]
    wait_up(members)
    every = max(1, lazies // switches)
    failures = [0] * count
    for number in range(lazies):
        if number % every == every // 2:
            git(folder, "reset", "-q", "--hard", commits[min(number // every + 1, switches)])
        failures = step(members)
    for member in members:
        member.communicate()
    return sum(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--lazies", type=int, default=50)
    parser.add_argument("--switches", type=int, default=3)
    args = parser.parse_args()
    with scratch() as folder:
        facts = sealed(folder / "sealed", args.members, args.lazies, args.switches)
        facts["in_place_failures"] = in_place(folder / "plain", args.members, args.lazies, args.switches)
    ok = (
        not (facts["failures"] or facts["removed_while_held"] or facts["kept_once_free"])
        and facts["in_place_failures"] != 0
    )
    return tell("mixed_code", facts, ok)


if __name__ == "__main__":
    sys.exit(main())
