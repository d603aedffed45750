"""1,000 hand-off records over 100 profiles, drained against a server that takes 50 ms an answer: wall time beside the ideal.

The ideal is: records / (profiles at a time x requests at a time in a profile) x 50 ms. `./run bench handoff_drain [--json]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nedura.http import Client, open_client
from nedura.signin.accounts import AccountStore
from nedura.signin.handoff import drain
from nedura.signin.handoff_record import HandoffStore
from nedura.signin.handoff_rules import Record, note
from nedura.signin.handoff_sending import AT_ONCE
from nedura.signin.identity import account_entry
from nedura.testing.http import PortalTransport
from nedura.testing.portal import Fault, Portal
from nedura.testing.portal.routes_oauth import token_set
from nedura.trust import Trust

URL = "http://127.0.0.1:9"
ANSWER_SECONDS = 0.05


def prepare(portal: Portal, home: Path, environ: dict[str, str], count: int) -> None:
    """One profile: signed in, with `count` records waiting."""
    home.mkdir(parents=True, mode=0o700)
    now = time.time()
    answer = token_set(portal, portal.login(), URL)
    entry = account_entry(
        answer, portal_url=URL, inference_url="", client_id="hermes-cli", scope="", tls={}, now=now
    )
    AccountStore(home, environ=environ).save_account(entry, renewal=False, now=now)
    found: list[Record] = []
    for _ in range(count):
        guest = portal.store.add_guest("gmail")
        record = note(
            None, token=guest.token, portal=URL, guest=guest.user_id, account="nas_user:alice", now=now
        )
        assert record is not None
        found.append(record)
    HandoffStore(home).change(lambda _: tuple(found))


async def measure(profiles: int, records: int, width: int, folder: Path) -> dict[str, Any]:
    """One run."""
    portal = Portal()
    environ = {"HOME": str(folder), "NEDURA_PORTAL_BASE_URL": URL}
    homes = [folder / ".nedura" / "profiles" / f"p{number}" for number in range(profiles)]
    for home in homes:
        prepare(portal, home, environ, records // profiles)
    portal.plant(Fault(route="anon.claim", times=-1, delay=ANSWER_SECONDS))
    gate = asyncio.Semaphore(width)

    @asynccontextmanager
    async def client(trust: Trust, **options: Any) -> AsyncIterator[Client]:
        options.pop("environ", None)
        async with open_client(trust, transport=PortalTransport(portal), environ={}, **options) as opened:
            yield opened

    async def one(home: Path) -> int:
        async with gate:
            results = await drain(home, environ=environ, client_factory=client)
            return sum(result.state == "claimed" for result in results)

    start = time.monotonic()
    claimed = sum(await asyncio.gather(*map(one, homes)))
    seconds = time.monotonic() - start
    ideal = records / (width * AT_ONCE) * ANSWER_SECONDS
    requests = portal.log.count("anon.claim")
    return {
        "kind": "handoff_drain", "profiles": profiles, "records": records, "claimed": claimed, "requests": requests,
        "at_once": width * AT_ONCE, "ideal_seconds": round(ideal, 2), "seconds": round(seconds, 2), "ratio": round(seconds / ideal, 2),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run bench handoff_drain", description=__doc__)
    parser.add_argument("--profiles", type=int, default=100)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--width", type=int, default=1, help="profiles drained at a time")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="nedura-drain-") as folder:
        found = asyncio.run(measure(args.profiles, args.records, args.width, Path(folder)))
    found["ok"] = found["claimed"] == found["requests"] == args.records and found["ratio"] <= 1.3
    text = json.dumps(found) if args.json else ", ".join(f"{name} {value}" for name, value in found.items())
    sys.stdout.write(text + "\n")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
