"""Twenty daemons restarted onto a new build by nedura, systemctl, pm2 and supervisord, good and bad builds (facts/peers.md a).

./run bench fleet_20 [--peers] [--rolls 100] [--count 20] [--width 4] [--json]

`--peers` installs pm2 (npm) and supervisor (Python index) into a scratch folder first. The first three rolls of `good` are those of
`update` in a sealed install: the first member is watched for 12 s before the others follow, and these for 12 s after they serve; the
host's checks run within these. `roll_s` is the median of them without the two watches, `total_s` with. In the other rolls nobody is
watched and nothing is left out: `unwatched_roll_s`, in which the first member's check (0.5 s) stands alone. All at once is measured twice
before and twice after them. A gap is measured by a probe beside the daemons, which needs a good part of a core.

Every row of nedura says what it breaks of its limits (`broken`); one that breaks any ends the bench with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs

from bench._managed import ROOT, inside, parts
from bench._probe20 import Probe, get
from nedura.fleet import MemberFailed, MemberRestarted, RestartParts, Runtime, look, restart_first, roll
from nedura.installs import CodeIdentity
from tests.system.restart.host import systemctl

DAEMON = ROOT / "bench" / "_daemon20.py"
FAULTS = {"boot": "boot", "hang": "ready", "dies": "settle", "version": "version", "answers": "health"}
"""What a bad build does, and the check that must name it."""
RATIO = 2.5
WATCHED, SETTLE_SECONDS = 3, 12.0
GAP_SECONDS = 0.3
LATE = "p07"


def code(version: str) -> CodeIdentity:
    return CodeIdentity(
        install_id="f" * 12, generation=version.zfill(6), code_sha=version * 40, code_version=version
    )


@attrs.define
class Work:
    """Trees, homes and names of one run."""

    base: Path
    count: int

    @property
    def ports(self) -> dict[str, int]:
        return {f"p{index:02}": 21000 + index for index in range(self.count)}

    def prepare(self) -> None:
        (self.base / "jobs").mkdir(parents=True, exist_ok=True)
        for version in ("1", "2"):
            (self.base / f"v{version}").mkdir(exist_ok=True)
            (self.base / f"v{version}" / "VERSION").write_text(version)
        self.point("1")

    def point(self, version: str, fault: str = "") -> None:
        (self.base / "v2" / "FAULT").write_text(fault)
        (self.base / "next").symlink_to(f"v{version}")
        (self.base / "next").rename(self.base / "current")

    def fault_at(self, name: str, fault: str) -> None:
        (self.base / f"fault-{name}").write_text(fault)

    def home(self, name: str) -> Path:
        return self.base / "root" / "profiles" / name


def start_units(work: Work, *, member: bool) -> None:
    folder = Path(os.environ["HOME"]) / ".config/systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    for name, port in work.ports.items():
        home = work.home(name)
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind = f"Type=notify\nEnvironment=NEDURA_HOME={home}\n" if member else "Type=simple\n"
        (folder / f"nedura-gateway-{name}.service").write_text(
            f"[Unit]\nStartLimitIntervalSec=0\n[Service]\n{kind}Environment=FLEET20={work.base} PYTHONPATH={ROOT}\n"
            f"ExecStart={sys.executable} {DAEMON} {name} {port}\nRestart=always\nRestartSec=5\nRestartForceExitStatus=75\n"
            "SuccessExitStatus=75\nKillMode=mixed\nTimeoutStartSec=15\nTimeoutStopSec=20\n"
        )
    systemctl("daemon-reload")
    systemctl("start", *units(work))


def units(work: Work) -> list[str]:
    return [f"nedura-gateway-{name}.service" for name in work.ports]


async def members(work: Work) -> list[Runtime]:
    found = []
    for name in work.ports:
        async with asyncio.timeout(30):
            while (one := await look(work.home(name))) is None or one.state != "running":
                await asyncio.sleep(0.02)
        found.append(one)
    return found


async def verified(work: Work, version: str) -> int:
    """How many members say by themselves that they serve a version."""
    found = [await look(work.home(name)) for name in work.ports]
    return sum(one is not None and one.state == "running" and one.code == code(version) for one in found)


async def probing(work: Work) -> Probe:
    probe = Probe(work.ports, work.base)
    probe.start()
    if await probe.until("1", 60) is None:
        raise SystemExit(f"the daemons did not start: {probe.versions} down {probe.down}")
    probe.reset()
    return probe


def health(work: Work) -> Any:
    async def check(member: Runtime) -> str:
        status, body = await get(work.ports[member.profile], "/work?health")
        return "" if (status, body) == (200, "done") else f"/work answers {status} {body!r}"

    return check


def real(work: Work) -> RestartParts:
    return attrs.evolve(parts(), health=health(work), serving_timeout=20.0)


async def nedura_roll(
    work: Work, version: str, *, width: int, settle: float, sealed: bool = True, late: str = ""
) -> dict[str, Any]:
    """A roll as `update` does it: in a sealed install a first member that fails takes the pointer back."""
    before = await members(work)
    if late:  # the faulty one is not to be chosen as the first member
        before = [attrs.evolve(one, active_turns=int(one.profile == late)) for one in before]
    work_start = time.monotonic()
    restarted: list[MemberRestarted] = []
    failed: list[MemberFailed] = []
    async with aclosing(
        roll(before, code(version), parts=real(work), sealed=sealed, width=width, settle=settle)
    ) as events:
        async for event in events:
            if isinstance(event, MemberRestarted):
                restarted.append(event)
            elif isinstance(event, MemberFailed):
                failed.append(event)
    total = time.monotonic() - work_start
    taken_back = sealed and bool(failed) and not restarted
    if taken_back:
        old = "1" if version == "2" else "2"
        work.point(old)
        victim = next(one for one in before if one.profile == failed[0].profile)
        now = await look(victim.home)
        again = victim if now is None else attrs.evolve(victim, pid=now.pid, start_time=now.start_time)
        back = [event async for event in restart_first([again], code(old), parts=real(work), settle=0)]
        failed += [event for event in back if isinstance(event, MemberFailed)]
    rolled = None if taken_back else round(total - settle * (2 if sealed else 1), 2)
    return {
        "exit": 1 if taken_back else 0, "total_s": round(total, 2), "roll_s": rolled,
        "restarted": len(restarted), "failed_checks": [event.check for event in failed], "taken_back": taken_back,
        "owed": 0 if taken_back else len(failed),
    }  # fmt: skip


async def seen(probe: Probe, work: Work, version: str) -> dict[str, Any]:
    await probe.until(version, 15)
    serving = sum(value == version for name, value in probe.versions.items() if name not in probe.down)
    found = {
        "serving": serving, "most_down": probe.most_down, "longest_gap_s": round(max(probe.gap.values(), default=0.0), 2),
        "refused": probe.refused, "wrong_answers": probe.wrong,
    }  # fmt: skip
    await probe.stop()
    lost = probe.lost()
    return {**found, "lost_jobs": len(lost), "lost": lost[:3]}


async def own_boot(work: Work) -> float:
    """Seconds from a start to an answer, of one daemon by itself."""
    unit, port = units(work)[0], next(iter(work.ports.values()))
    systemctl("stop", unit)
    start = time.monotonic()
    systemctl("start", "--no-block", unit)
    while (await get(port, "/version"))[0] != 200:
        await asyncio.sleep(0.005)
    return time.monotonic() - start


async def all_at_once(work: Work, probe: Probe, version: str) -> float:
    """Seconds of a plain `systemctl restart` of everybody, until everybody answers with the version."""
    work.point(version)
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec("systemctl", "--user", "restart", *units(work))
    await process.wait()
    if await probe.until(version, 60) is None:
        raise SystemExit(f"not everybody serves {version}: {probe.versions} down {probe.down}")
    return time.monotonic() - start


async def good(work: Work, width: int, rolls: int) -> dict[str, Any]:
    start_units(work, member=True)
    boot = await own_boot(work)
    probe = await probing(work)
    at_once = [await all_at_once(work, probe, version) for version in "21"]
    at_once_down = probe.most_down
    probe.reset()
    results, pairs = [], []
    for number in range(rolls):
        version = "21"[number % 2]
        work.point(version)
        results.append(
            await nedura_roll(work, version, width=width, settle=SETTLE_SECONDS if number < WATCHED else 0.0)
        )
        pairs += await gaps_and_boots(work, probe, version)
    noticed = await seen(probe, work, version)
    whole = await verified(work, version)
    after = Probe(work.ports, work.base)
    after.start()
    at_once += [await all_at_once(work, after, other) for other in ("12" if version == "2" else "21")]
    await after.stop()
    over = [gap - boot for gap, boot in pairs]
    watched, unwatched = ([one["roll_s"] for one in some] for some in (results[:WATCHED], results[WATCHED:]))
    once, roll_s = statistics.median(at_once), statistics.median(watched)
    free = statistics.median(unwatched) if unwatched else None
    return {
        "what": f"nedura, width {width}", "exit": max(one["exit"] for one in results), "rolls": rolls,
        "restarted": min(one["restarted"] for one in results), "owed": sum(one["owed"] for one in results), "verified": whole, **noticed,
        "total_s": statistics.median(one["total_s"] for one in results[:WATCHED]), "roll_s": round(roll_s, 2), "roll_each_s": watched,
        "unwatched_roll_s": free and round(free, 2), "unwatched_worst_s": max(unwatched, default=None),
        "all_at_once_s": round(once, 2), "all_at_once_each_s": [round(one, 2) for one in at_once],
        "all_at_once_down": at_once_down, "ratio_to_all_at_once": round(roll_s / once, 2),
        "unwatched_ratio": free and round(free / once, 2), "own_boot_s": round(boot, 2),
        "longest_gap_s": round(max(gap for gap, _ in pairs), 2), "gap_over_its_own_boot_s": round(max(over), 3),
        "gap_over_its_own_boot_p50_s": round(statistics.median(over), 3),
    }  # fmt: skip


def missed(name: str, row: dict[str, Any], count: int, width: int) -> list[str]:
    """Which limits of the work a row of nedura breaks; another tool's row has none."""
    kind, _, fault = name.partition(":")
    if kind not in ("good", "bad", "late", "checkout"):
        return []
    # a build that ends itself takes the job it runs along; nobody could have kept it
    rules = {"no job is lost": row["lost_jobs"] <= (fault == "dies")}
    if kind == "good":
        rules |= {
            "everybody is restarted, every time": (row["exit"], row["restarted"], row["owed"], row["verified"]) == (0, count, 0, count),
            f"at most {width} are down": row["most_down"] <= width,
            f"at most {RATIO} x all at once": row["ratio_to_all_at_once"] <= RATIO,
            f"no gap beyond its own boot and {GAP_SECONDS} s": row["gap_over_its_own_boot_s"] <= GAP_SECONDS,
        }  # fmt: skip
    elif kind == "bad":
        rules |= {
            "it exits with 1": row["exit"] == 1,
            "nobody is restarted onto it": row["restarted"] == 0,
            "at most one leaves service": row["most_down"] <= 1,
            f"the failed check is {FAULTS[fault]}": row["failed_checks"] == [FAULTS[fault]],
            "afterwards everybody is verified on the old build": row["verified"] == row["serving"] == count,
        }
    else:
        rules |= {
            "it exits with 0 and one member is owed": (row["exit"], row["owed"]) == (0, 1),
            "all others are verified": (row["restarted"], row["verified_others"]) == (count - 1, count - 1),
            f"at most {width} are down": row["most_down"] <= width,
            f"the failed check is {FAULTS[fault]}": row["failed_checks"] == [FAULTS[fault]],
        }
    return [rule for rule, kept in rules.items() if not kept]


async def gaps_and_boots(work: Work, probe: Probe, version: str) -> list[tuple[float, float]]:
    """Of each daemon: how long nobody could reach it in the roll that just ended, and what of that it took to boot by its own word.

    Twenty daemons share the cores with their users, so a boot within a roll is longer than one alone.
    """
    if await probe.until(version, 20) is None:
        raise SystemExit(f"not everybody serves {version}: {probe.versions} down {probe.down}")
    found = [(probe.gap[one.profile], one.boot_s or 0.0) for one in await members(work)]
    probe.gap.clear()
    return found


async def bad(work: Work, fault: str, *, at: str = "", sealed: bool = True) -> dict[str, Any]:
    start_units(work, member=True)
    probe = await probing(work)
    if at:
        work.fault_at(at, fault)
        work.point("2")
    else:
        work.point("2", fault)
    result = await nedura_roll(work, "2", width=4, settle=SETTLE_SECONDS, sealed=sealed, late=at)
    ends_on = "1" if result["taken_back"] else "2"
    noticed = await seen(probe, work, ends_on)
    layout = "sealed" if sealed else "checkout"
    whole = await verified(work, ends_on)
    at_fault = await look(work.home(at)) if at else None
    noticed["verified"] = whole
    noticed["verified_others"] = whole - (
        at_fault is not None and at_fault.state == "running" and at_fault.code == code("2")
    )
    return {
        "what": f"nedura ({layout}), bad build: {fault}{f' at {at} only' if at else ''}",
        **result,
        **noticed,
    }


async def by_systemctl(work: Work, fault: str) -> dict[str, Any]:
    start_units(work, member=False)
    probe = await probing(work)
    work.point("2", fault)
    return await timed(
        work, probe, "systemctl restart", "systemctl", "--user", "restart", *units(work), fault=fault
    )


async def timed(
    work: Work, probe: Probe, what: str, *argv: str, fault: str, env: dict[str, str] | None = None
) -> dict[str, Any]:
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *argv, env=env, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    status = await process.wait()
    took = await probe.until("2", 5 if fault else 30)
    total = time.monotonic() - start
    noticed = await seen(probe, work, "2")
    name = f"{what}, bad build: {fault}" if fault else what
    return {"what": name, "exit": status, "total_s": round(total, 2) if took is not None else None, **noticed}


async def by_pm2(work: Work, fault: str, peers: Path) -> dict[str, Any]:
    pm2 = str(peers / "node_modules" / ".bin" / "pm2")
    env = {
        **os.environ,
        "PM2_HOME": str(work.base / "pm2"),
        "FLEET20": str(work.base),
        "PYTHONPATH": str(ROOT),
    }
    apps = [
        {
            "name": name,
            "script": str(DAEMON),
            "args": [name, str(port)],
            "interpreter": sys.executable,
            "kill_timeout": 10000,
        }
        for name, port in work.ports.items()
    ]
    config = work.base / "eco.config.json"
    config.write_text(json.dumps({"apps": apps}))
    subprocess.run([pm2, "start", str(config)], env=env, check=True, capture_output=True)
    try:
        probe = await probing(work)
        work.point("2", fault)
        return await timed(work, probe, "pm2 reload all", pm2, "reload", "all", fault=fault, env=env)
    finally:
        subprocess.run([pm2, "kill"], env=env, check=False, capture_output=True)


async def by_supervisord(work: Work, fault: str, peers: Path) -> dict[str, Any]:
    config = work.base / "s.conf"
    programs = "".join(
        f"[program:{name}]\ncommand={sys.executable} {DAEMON} {name} {port}\nstopwaitsecs=10\nstartsecs=1\n"
        for name, port in work.ports.items()
    )
    config.write_text(
        f"[supervisord]\nlogfile={work.base}/s.log\npidfile={work.base}/s.pid\n[unix_http_server]\nfile={work.base}/s.sock\n"
        f"[supervisorctl]\nserverurl=unix://{work.base}/s.sock\n[rpcinterface:supervisor]\n"
        f"supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n{programs}"
    )
    env = {**os.environ, "FLEET20": str(work.base), "PYTHONPATH": str(ROOT)}
    tool = str(peers / "venv" / "bin")
    subprocess.run([f"{tool}/supervisord", "-c", str(config)], env=env, check=True, capture_output=True)
    try:
        probe = await probing(work)
        work.point("2", fault)
        return await timed(
            work,
            probe,
            "supervisorctl restart all",
            f"{tool}/supervisorctl",
            "-c",
            str(config),
            "restart",
            "all",
            fault=fault,
            env=env,
        )
    finally:
        subprocess.run(
            [f"{tool}/supervisorctl", "-c", str(config), "shutdown"],
            env=env,
            check=False,
            capture_output=True,
        )


def install_peers(folder: Path) -> None:
    """pm2 and supervisor in a scratch folder, by their ordinary clients."""
    subprocess.run(
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), "pm2@7.0.4"],
        check=True,
    )
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    subprocess.run(
        [str(folder / "venv/bin/pip"), "install", "-q", "supervisor==4.3.0", "setuptools<80"], check=True
    )


async def one(name: str, args: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="fleet20-", dir=os.environ["XDG_RUNTIME_DIR"]))
    work = Work(folder, args.count)
    work.prepare()
    peers = Path(args.scratch)
    kind, _, fault = name.partition(":")
    match kind:
        case "good":
            return await good(work, args.width, args.rolls)
        case "bad":
            return await bad(work, fault)
        case "late":
            return await bad(work, fault, at=LATE)
        case "checkout":
            return await bad(work, fault, at=LATE, sealed=False)
        case "systemctl":
            return await by_systemctl(work, fault)
        case "pm2":
            return await by_pm2(work, fault, peers)
        case _:
            return await by_supervisord(work, fault, peers)


def plan(with_peers: bool) -> list[str]:
    names = [
        "good",
        *[f"bad:{fault}" for fault in FAULTS],
        *[f"late:{fault}" for fault in FAULTS],
        *[f"checkout:{fault}" for fault in FAULTS],
    ]
    names += ["systemctl", "systemctl:boot"]
    return names + (["pm2", "pm2:boot", "supervisord", "supervisord:boot"] if with_peers else [])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--rolls", type=int, default=100)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scratch", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only and args.scratch:
        inside("bench.fleet_20", sys.argv[1:])
        print(json.dumps(asyncio.run(one(args.only[0], args))))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="nedura-fleet20-"))
    try:
        if args.peers:
            install_peers(scratch)
        rows = []
        for name in args.only or plan(args.peers):
            argv = [sys.executable, "-m", "bench.fleet_20", "--only", name, "--scratch", str(scratch), "--rolls", str(args.rolls),
                    "--count", str(args.count), "--width", str(args.width)]  # fmt: skip
            ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
            if ran.returncode == 0:
                row = json.loads(ran.stdout.splitlines()[-1])
                row["broken"] = missed(name, row, args.count, args.width)
            else:
                row = {"what": name, "error": ran.stderr[-800:]}
            rows.append(row)
            print(
                json.dumps(row) if args.json else "  ".join(f"{key}={value}" for key, value in row.items()),
                flush=True,
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if any(row.get("broken", True) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
