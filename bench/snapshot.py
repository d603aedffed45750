"""Snapshots of many profiles: against `cp` of the same bytes, under live writers, and how time and memory grow.

./run bench snapshot                      20 profiles x (50 MB WAL database + 50 small files), in turns with cp: at most 1.5 x of a bare
                                          `cp -a`, which leaves its bytes in memory (median of the rounds' ratios, and their spread); the
                                          ratio to `cp -a` and `sync` is told beside it. Memory flat: 20 profiles take at most 16 MB more
                                          than one
./run bench snapshot --live               the same while a process has every database open and a log waits in each
./run bench snapshot --writers --rounds 50    20 databases a round under live writers: 0 bad of 1,000
./run bench snapshot --growth             1, 10, 100 profiles: no worse than linear
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager, nullcontext
from pathlib import Path
from statistics import median

from bench._repos import scratch, tell
from nedura.update.state.snapshot import take_snapshots
from nedura.update.state.snapshot_manifest import read_manifest

WRITER = """
import random, sqlite3, sys, time
paths = sys.argv[1:]
dbs = [sqlite3.connect(p, isolation_level=None, timeout=10) for p in paths]
for db in dbs: db.execute('PRAGMA synchronous=NORMAL')
print('go', flush=True)
r = random.Random(1)
while True:
    for db in dbs:
        a, b, n = r.randrange(100), r.randrange(100), r.randrange(1, 50)
        db.execute('BEGIN IMMEDIATE')
        db.execute('UPDATE account SET money = money - ? WHERE id = ?', (n, a))
        db.execute('UPDATE account SET money = money + ? WHERE id = ?', (n, b))
        db.execute('INSERT INTO log(body) VALUES (?)', ('x' * r.randrange(50, 800),))
        db.execute('COMMIT')
    time.sleep(0.001)
"""


HOLDER = """
import sqlite3, sys
dbs = [sqlite3.connect(p, isolation_level=None) for p in sys.argv[1:]]
for db in dbs:
    db.execute('PRAGMA wal_autocheckpoint=0')
    for n in range(200): db.execute('INSERT INTO log(session, body) VALUES (?, ?)', (f's{n}', 'x' * 900))
print('go', flush=True)
sys.stdin.read()
"""
GOAL = 1.5
FLAT_MB = 16


def make_home(home: Path, megabytes: float, seed: int) -> None:
    (home / "pairing").mkdir(parents=True)
    home.chmod(0o700)
    chance = random.Random(seed)
    words = "".join(chance.choice("abcdefghij klmno") for _ in range(6000))
    with closing(sqlite3.connect(home / "state.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, money INTEGER)")
        db.executemany("INSERT INTO account VALUES(?, 1000)", [(n,) for n in range(100)])
        db.execute("CREATE TABLE log(id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
        db.execute("CREATE INDEX by_session ON log(session)")
        count = int(megabytes * 1090)
        db.executemany(
            "INSERT INTO log(session, body) VALUES(?, ?)",
            ((f"s{n % 500}", words[n % 1000 : n % 1000 + 600 + n % 400]) for n in range(count)),
        )
        db.commit()
    for number in range(50):
        (home / f"pairing/f{number}.json").write_bytes(chance.randbytes(2000))


def profiles(root: Path, count: int, megabytes: float) -> list[tuple[str, Path]]:
    homes = [(f"p{number:03}", root / f"p{number:03}") for number in range(count)]
    for number, (_, home) in enumerate(homes):
        make_home(home, megabytes, number)
    return homes


async def _take(homes: list[tuple[str, Path]]) -> dict[str, str]:
    taken: dict[str, str] = {}
    async with aclosing(take_snapshots(homes)) as events:
        async for event in events:
            if event.kind == "snapshot_taken":
                assert not getattr(event, "incomplete", ()), event
                taken[getattr(event, "profile", "")] = getattr(event, "snapshot_id", "")
    return taken


def snapshot(homes: list[tuple[str, Path]]) -> tuple[float, dict[str, str]]:
    began = time.perf_counter()
    taken = asyncio.run(_take(homes))
    return time.perf_counter() - began, taken


def copy(homes: list[tuple[str, Path]], to: Path) -> tuple[float, float]:
    """Seconds of `cp -a` alone, and until the same bytes are as durable as a snapshot is."""
    to.mkdir()
    began = time.perf_counter()
    subprocess.run(["cp", "-a", *[str(home) for _, home in homes], str(to)], check=True)
    copied = time.perf_counter() - began
    subprocess.run(["sync", "-f", str(to)], check=True)
    return copied, time.perf_counter() - began


def clear(homes: list[tuple[str, Path]], to: Path, aside: Path) -> None:
    """Give the copies' memory and blocks back. Their small files stay, put aside: ext4 passes by inodes that were freed within the last
    seconds, one by one, and a file made after a thousand were removed takes 0.35 ms instead of 0.03, whoever makes it."""
    aside.mkdir(exist_ok=True)
    for folder in [*(home / "state-snapshots" for _, home in homes), to]:
        if folder.exists():
            for path in folder.rglob("state.db"):
                os.truncate(path, 0)
            folder.rename(aside / str(len(os.listdir(aside))))
    os.sync()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@contextmanager
def held_open(homes: list[tuple[str, Path]]) -> Iterator[None]:
    """Every database open in another process, its newest rows only in the log."""
    paths = [str(home / "state.db") for _, home in homes]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield
        finally:
            child.stdin.close()
            child.wait()


def against_cp(args: argparse.Namespace) -> int:
    ours, plain, durable = [], [], []
    with scratch() as folder:
        homes = profiles(folder / "homes", args.profiles, args.megabytes)
        ways = {
            "cp": lambda: copy(homes, folder / "cp"),
            "snapshot": lambda: (snapshot(homes)[0], 0.0),
        }
        with held_open(homes) if args.live else nullcontext():
            snapshot([homes[0]])
            memory_one = peak()
            for number in range(1 + (args.rounds or 9)):
                seconds = {}
                for name in sorted(ways, reverse=number % 2 == 0):  # each goes first as often as second
                    clear(homes, folder / "cp", folder / "aside")
                    seconds[name] = ways[name]()
                if number:  # the first round warms the files and the memory
                    plain.append(seconds["cp"][0])
                    durable.append(seconds["cp"][1])
                    ours.append(seconds["snapshot"][0])
            memory_all = peak()
    ratios = sorted(mine / base for mine, base in zip(ours, plain, strict=True))
    middle = median(ratios)
    facts: dict[str, float | int | str | bool] = {
        "profiles": args.profiles, "megabytes_each": args.megabytes, "live": args.live, "rounds": len(ours),
        "snapshot_s": round(median(ours), 2), "cp_s": round(median(plain), 2), "cp_and_sync_s": round(median(durable), 2),
        "ratio_to_cp": round(middle, 2), "spread": f"{ratios[0]:.2f} to {ratios[-1]:.2f}", "goal_ratio": GOAL,
        "fastest_to_fastest": round(min(ours) / min(plain), 2),
        "ratio_to_cp_and_sync": round(median(mine / base for mine, base in zip(ours, durable, strict=True)), 2),
        "rss_one_mb": memory_one, "rss_all_mb": memory_all, "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return tell("snapshot", facts, middle <= GOAL and memory_all - memory_one <= FLAT_MB)


@contextmanager
def writers(homes: list[tuple[str, Path]], processes: int = 4) -> Iterator[None]:
    children = []
    try:
        for number in range(processes):
            paths = [str(home / "state.db") for _, home in homes[number::processes]]
            child = subprocess.Popen([sys.executable, "-c", WRITER, *paths], stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            children.append(child)
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


def is_bad(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            whole = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return not whole or db.execute("SELECT sum(money) FROM account").fetchone() != (100_000,)
    except sqlite3.Error:
        return True


def under_writers(args: argparse.Namespace) -> int:
    rounds = args.rounds or 50
    with scratch() as folder:
        homes = profiles(folder / "homes", args.profiles, args.megabytes)
        checked = bad = plain_bad = 0
        times = []
        with writers(homes):
            for number in range(rounds):
                seconds, taken = snapshot(homes)
                times.append(seconds)
                for name, home in homes:
                    checked += 1
                    bad += name not in taken or is_bad(home / "state-snapshots" / taken[name] / "state.db")
                if number < 5:
                    plain_bad += _plain_copies(homes, folder / "plain")
        files = len(read_manifest(homes[0][1] / "state-snapshots" / taken[homes[0][0]]).files)
    facts: dict[str, float | int | str | bool] = {
        "databases": checked, "bad": bad, "cp_bad_of": f"{plain_bad} of {min(rounds, 5) * len(homes)}", "files_each": files,
        "median_round_s": round(sorted(times)[len(times) // 2], 2),
    }  # fmt: skip
    return tell("snapshot_writers", facts, bad == 0)


def _plain_copies(homes: list[tuple[str, Path]], to: Path) -> int:
    """The same with `cp -a` of database and log: how many are bad."""
    to.mkdir()
    subprocess.run(["cp", "-a", *[str(home) for _, home in homes], str(to)], check=False)
    bad = 0
    for _, home in homes:
        path = to / home.name / "state.db"
        try:
            with closing(sqlite3.connect(path)) as db:
                whole = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                bad += not whole or db.execute("SELECT sum(money) FROM account").fetchone() != (100_000,)
        except sqlite3.Error:
            bad += 1
    shutil.rmtree(to)
    return bad


def growth(args: argparse.Namespace) -> int:
    counts, each = (1, 10, 100), {}
    with scratch() as folder:
        homes = profiles(folder / "homes", max(counts), 2.0)
        snapshot(homes[:1])
        memory = {}
        for count in counts:
            seconds = []
            for _ in range(args.rounds or 3):
                clear(homes, folder / "cp", folder / "aside")
                seconds.append(snapshot(homes[:count])[0])
            each[count] = min(seconds)
            memory[count] = peak()
    linear = each[100] / each[10] <= 10 * 1.25
    facts: dict[str, float | int | str | bool] = {
        **{f"profiles_{count}_s": round(each[count], 3) for count in counts},
        "growth_10_to_100": round(each[100] / each[10], 2), **{f"rss_{count}_mb": memory[count] for count in counts},
    }  # fmt: skip
    return tell("snapshot_growth", facts, linear)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    signal.signal(signal.SIGTERM, _end)  # so that writers and scratch folders go
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=None)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--writers", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--growth", action="store_true")
    args = parser.parse_args()
    if args.megabytes is None:
        args.megabytes = 3.0 if args.writers else 50.0
    if args.growth:
        return growth(args)
    return under_writers(args) if args.writers else against_cp(args)


if __name__ == "__main__":
    sys.exit(main())
