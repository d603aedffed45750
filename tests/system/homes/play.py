"""Install, serve and update in a home of a given kind: `python -m tests.system.homes.play FOLDER [--link] [--shared] [--whole]`.

A process of its own, so that its umask, user, PATH and locale are what the table says. Its last line is JSON: what was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from demo.scenes import SCENES, Story
from demo.world import World as DemoWorld
from nedura.errors import NeduraError
from nedura.wire import Event
from tests.kits import site

OPEN = ("bin", "installs")
"""Below a home only the launcher and the trees may be read by others (threats.md 6)."""


def lay_out(folder: Path, *, link: bool, shared: bool) -> None:
    """What is at the home's place before anything is installed."""
    if link:
        (folder / "elsewhere").mkdir(mode=0o700)
        (folder / "home").symlink_to("elsewhere")
    if shared:
        os.chmod(folder, 0o775)


def readable(home: Path) -> list[str]:
    """What others may read or write in a home and should not."""
    found = []
    for base, folders, files in os.walk(home):
        if Path(base) == home:
            folders[:] = [name for name in folders if name not in OPEN]
        for name in (*folders, *files):
            info = os.lstat(os.path.join(base, name))
            if not stat.S_ISLNK(info.st_mode) and info.st_mode & 0o077:
                found.append(f"{name} {stat.S_IMODE(info.st_mode):o}")
    return sorted(found)


def snapshots(home: Path) -> int:
    """How many whole snapshots a home has."""
    return len(list((home / "state-snapshots").glob("*-pre-update*/manifest.json")))


def short(folder: Path) -> dict[str, Any]:
    """One gateway, one update of it that a sibling profile asks for (C016), and a second one that has nothing to do.

    No package is built and no portal asked.
    """
    place = site.build(folder, site.quick_tree())
    try:
        made = place.command("profile", "create", "alpha")
        place.start("default")
        before = place.pids(["default"])
        newer = place.site.origin.commit({"README.md": "newer\n"})
        language: dict[str, Any] = {name: os.environ[name] for name in ("LC_ALL",) if name in os.environ}
        done = place.command("-p", "alpha", "update", "--json", timeout=100, **language)
        code, events = done.returncode, [json.loads(line) for line in done.stdout.splitlines()]
        second_code, second = place.update(**language)
        return {
            "home": str(place.home),
            "codes": [made.returncode, code, second_code],
            "outcome": events[-1].get("outcome"),
            "stop_reason": events[-1].get("stop_reason"),
            "current": place.current,
            "runs_newer": place.state("default").get("code_sha") == newer,
            "restarted": place.pids(["default"]) != before,
            "changed_again": [event["changed"] for event in second if event["kind"] == "prepared"],
            "snapshots": [snapshots(place.home_of(name)) for name in ("default", "alpha")],
            "readable": readable(place.home),
        }
    finally:
        place.close()


async def whole(folder: Path, checkout: Path) -> dict[str, Any]:
    """Every scene of `./run demo`: a real environment of packages, the portal, three gateways, the sign-in, the update."""
    told: list[str] = []

    def tell(event: Event) -> None:
        told.append(event.copy_terminal)

    story = Story(world=DemoWorld(checkout=checkout, folder=folder, tell=tell))
    reason = ""
    try:
        for scene in SCENES:
            await scene(story)
    except (NeduraError, OSError) as error:
        reason = f"{scene.__name__}: {error}"
    home = story.world.home
    found = {
        "home": str(home),
        "reason": reason,
        "downtimes": dict(story.downtimes),
        "readable": readable(home),
        "told": told[-25:] if reason else [],
    }
    left = await story.world.end(keep=False)
    return {**found, "left": left}


def main(argv: list[str] | None = None) -> int:
    """Play in the folder and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--link", action="store_true")
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[3])
    args = parser.parse_args(argv)
    args.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="n", dir=args.folder))
    lay_out(folder, link=args.link, shared=args.shared)
    try:
        found = asyncio.run(whole(folder, args.checkout)) if args.whole else short(folder)
    except NeduraError as error:
        found = {"refused": error.message, "code": error.exit_code}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
