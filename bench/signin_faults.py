"""Twenty fault scripts: how many logins complete, ours beside MSAL and huggingface_hub.

`./run bench signin_faults [--peers PYTHON] [--no-peers] [--json]`

All run against the same scripted endpoint at an interval of 1 s. The peers live in an environment of their own (`bench/peers.txt`), made in
a temporary folder unless `--peers` names a Python that has them; `--no-peers` measures ours alone. Exit 1 when ours misses one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from bench._fault_scripts import SCRIPTS, endpoint, life_of
from nedura.signin import run_sign_in
from tests.unit.signin.tokens import jwt

HERE = Path(__file__).parent


async def ours(url: str, folder: Path) -> list[str]:
    async def one(index: int) -> str:
        home = folder / f"home{index}"
        environ = {"NEDURA_PORTAL_BASE_URL": f"{url}/nedura.{index}", "HOME": str(folder)}
        async with aclosing(run_sign_in(home=home, environ=environ)) as states:
            return [state async for state in states][-1].kind

    return list(await asyncio.gather(*(one(index) for index in range(len(SCRIPTS)))))


def peers_python(folder: Path) -> str:
    venv.create(folder / "peers", with_pip=True)
    python = str(folder / "peers" / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-r", str(HERE / "peers.txt")],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return python


def peer(python: str, name: str, url: str) -> list[str]:
    lives = json.dumps([life_of(script) for script in SCRIPTS])
    ran = subprocess.run(
        [python, "-W", "ignore", str(HERE / "_fault_peers.py"), name, url, lives],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found: list[str] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


def measure(peers: str | None, with_peers: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="nedura-bench-") as folder:
        place = Path(folder)
        found: dict[str, list[str]] = {}
        python = peers or (peers_python(place) if with_peers else None)
        with endpoint(jwt("acct:1", now=time.time(), life=7200)) as url:
            found["nedura"] = asyncio.run(ours(url, place))
            for name in ("msal", "huggingface_hub") if python else ():
                found[name] = peer(str(python), name, url)
    return {
        "scripts": len(SCRIPTS),
        "completed": {name: sum(end == "completed" for end in ends) for name, ends in found.items()},
        "lost": {
            name: {script: end for script, end in zip(SCRIPTS, ends, strict=True) if end != "completed"}
            for name, ends in found.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="a Python that has the packages of bench/peers.txt")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result = measure(given.peers, not given.no_peers)
    if given.json:
        print(json.dumps(result))
    else:
        for name, count in result["completed"].items():
            print(f"{name}: {count} of {result['scripts']} logins completed")
            for script, end in result["lost"][name].items():
                print(f"    lost: {script} ({end})")
    return 0 if result["completed"]["nedura"] == result["scripts"] else 1


if __name__ == "__main__":
    sys.exit(main())
