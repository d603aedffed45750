"""200 processes share one login whose token just ended: how often is it redeemed, and when does everybody hold the new one?

`./run bench refresh_storm [--processes N] [--profiles N] [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trustme

from nedura.signin.accounts import AccountStore
from nedura.signin.identity import account_entry
from nedura.signin.refresh import refresh_account
from nedura.testing.portal import Portal, PortalServer, serve_portal
from nedura.testing.portal.routes_oauth import token_set

ACCOUNT = "alice@example.test"


def worker(connection: Connection, home: Path, environ: dict[str, str]) -> None:
    """One process: says that it is ready, waits for the start, asks for a token that can be used."""
    connection.send("ready")
    connection.recv()
    result = asyncio.run(
        refresh_account(AccountStore(home, environ=environ), environ=environ, lock_seconds=60)
    )
    bearer = result.bearer
    connection.send((result.outcome.value, bearer.reveal() if bearer else "", time.monotonic()))


def _save(store: AccountStore, answer: dict[str, Any], url: str) -> None:
    entry = account_entry(
        answer,
        portal_url=url,
        inference_url="",
        client_id="hermes-cli",
        scope="inference:invoke",
        tls={},
        now=time.time(),
    )
    store.save_account(entry, renewal=False, now=time.time())


async def storm(processes: int, profiles: int, folder: Path) -> dict[str, Any]:
    """One run."""
    trustme.CA().cert_pem.write_to_path(folder / "ca.pem")
    root, portal = folder / ".nedura", Portal()
    portal.knobs.access_ttl = 1
    async with serve_portal(portal) as server:
        environ = _environ(folder, server)
        homes = [root / "profiles" / f"p{number}" for number in range(profiles)]
        answer = token_set(portal, portal.login(ACCOUNT), server.url)
        for home in homes:
            home.mkdir(parents=True, mode=0o700)
            _save(AccountStore(home, environ=environ), answer, server.url)
        portal.knobs.access_ttl = 900
        crowd = await asyncio.to_thread(_gather, processes, homes, environ)
        await asyncio.sleep(max(0.0, 1.2))  # the token is over for everybody
        start = time.monotonic()
        for connection in crowd:
            connection.send("go")
        results = await asyncio.gather(*(asyncio.to_thread(connection.recv) for connection in crowd))
        outcomes = [outcome for outcome, _, _ in results]
        return {
            "kind": "refresh_storm",
            "processes": processes,
            "profiles": profiles,
            "redeems": portal.log.count("token.refresh"),
            "reuse": portal.store.reuse,
            "distinct_tokens": len({token for _, token, _ in results}),
            "without_token": sum(not token for _, token, _ in results),
            "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "seconds": round(max(at for _, _, at in results) - start, 2),
        }


def _environ(folder: Path, server: PortalServer) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "NEDURA_PORTAL_BASE_URL": server.url,
        "NEDURA_CA_BUNDLE": str(folder / "ca.pem"),
    }


def _gather(processes: int, homes: Sequence[Path], environ: dict[str, str]) -> list[Connection]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "nedura.signin.refresh"])
    crowd = []
    for number in range(processes):
        ours, theirs = context.Pipe()
        context.Process(
            target=worker, args=(theirs, homes[number % len(homes)], environ), daemon=True
        ).start()
        theirs.close()
        crowd.append(ours)
    for connection in crowd:
        connection.recv()
    return crowd


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run bench refresh_storm", description=__doc__)
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--profiles", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="nedura-storm-") as folder:
        found = asyncio.run(storm(args.processes, args.profiles, Path(folder)))
    good = (
        found["redeems"] == 1
        and found["reuse"] == 0
        and found["distinct_tokens"] == 1
        and not found["without_token"]
    )
    found["ok"] = good and found["seconds"] < 10
    text = json.dumps(found) if args.json else ", ".join(f"{name} {value}" for name, value in found.items())
    sys.stdout.write(text + "\n")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
