"""No secret of a home reaches what a gateway writes, says or shows (threats.md 6)."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

from nedura.fleet import ask_now, collect_now
from nedura.signin.accounts import AccountStore
from nedura.signin.identity import account_entry
from nedura.testing.portal.control import portal_process
from tests.kits.fleet import ROOT, child_environ, gateway, wait_for

NEEDLE = "needle-4f1c9a7e2b"
STORES = {"auth.json", "nous_auth.json", ".env", "config.yaml"}


def forms(needle: str) -> list[bytes]:
    return [needle.encode(), base64.b64encode(needle.encode()), quote(needle, safe="").encode()]


def holds(data: bytes, needles: list[str]) -> list[str]:
    return [needle for needle in needles for form in forms(needle) if form in data]


def test_nothing_but_the_stores_holds_a_secret(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with portal_process(tmp_path) as portal:
        entry = account_entry(
            portal.login(),
            portal_url=portal.url,
            inference_url=f"{portal.url}/v1",
            client_id="hermes-cli",
            scope="inference:invoke",
            tls={},
            now=time.time(),
        )
        AccountStore(home).save_account(entry, renewal=False, now=time.time())
        needles = [NEEDLE, str(entry["access_token"]), str(entry["refresh_token"])]
        (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={NEEDLE}\n")
        (home / "config.yaml").write_text(f"model:\n  default: some/model\n  api_key: {NEEDLE}\n")
        assert holds((home / "auth.json").read_bytes(), needles), "the trap works: the stores do hold them"
        environ = {"NEDURA_ANON_API_SECRET": NEEDLE, "NEDURA_PORTAL_BASE_URL": portal.url}
        with gateway(home, "-v", handler="", environ=environ) as daemon:
            said = [daemon.chat("hello")]
            portal.plant(route="chat", status=401, times=2, error="invalid_token", text=needles[1])
            said.append(daemon.chat("again"))
            portal.plant(route="chat", status=500, error=needles[1], text=needles[1])
            said.append(daemon.chat("once more"))
            status = ask_now(home, "status")
            shown = subprocess.run(
                [sys.executable, "-m", "nedura_cli", "fleet", "status", "--json"],
                cwd=ROOT, env=child_environ(home), capture_output=True, check=True, timeout=40,
            )  # fmt: skip
            fleet = repr(collect_now(home))
            daemon.signal(signal.SIGUSR1)
            assert daemon.wait() == 75
        outputs = {
            "chat": json.dumps(said).encode(),
            "status": json.dumps(status).encode(),
            "fleet status": shown.stdout + shown.stderr,
            "fleet": fleet.encode(),
            "log": daemon.log.read_bytes(),
        }
        for path in home.rglob("*"):
            if path.is_file() and path.name not in STORES:
                outputs[path.name] = path.read_bytes()
    found = {name: holds(data, needles) for name, data in outputs.items()}
    assert not {name: hits for name, hits in found.items() if hits}


def test_a_secret_on_the_command_line_of_a_host_daemon_is_masked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    script = tmp_path / "hostd.py"
    script.write_text(
        "import asyncio, nedura\n"
        "async def main():\n"
        "    async with nedura.FleetMember() as member:\n"
        "        await member.wait_stopped()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), "--bot-token", NEEDLE, f"--api-key={NEEDLE}"], env=child_environ(home)
    )
    try:
        wait_for(lambda: ask_now(home, "identify"))
        wait_for(lambda: (home / "gateway_state.json").exists())
        outputs = [json.dumps(ask_now(home, "status")).encode()]
        outputs += [path.read_bytes() for path in home.iterdir() if path.is_file()]
        outputs.append(
            subprocess.run(
                [sys.executable, "-m", "nedura_cli", "fleet", "explain", str(process.pid)],
                cwd=ROOT,
                env=child_environ(home),
                capture_output=True,
                check=True,
                timeout=40,
            ).stdout
        )
        assert not [hits for data in outputs if (hits := holds(data, [NEEDLE]))]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)


def test_log_records_stay_one_line(tmp_path: Path) -> None:
    """What a client sends can neither forge a line nor carry an escape into the log."""
    with gateway(tmp_path / "home", "-v") as daemon, daemon.connect() as link:
        hostile = "\x1b[2J\r\n2026-01-01 00:00:00 INFO forged: line\u2028x"
        link.sendall(json.dumps({"text": "0.1", "chat": hostile}).encode() + b"\n")
        link.recv(4096)
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(tmp_path / "home" / "gateway.sock"))
            raw.sendall(json.dumps({"verb": hostile}).encode() + b"\n")
            raw.recv(4096)
        time.sleep(0.2)
        said = daemon.said()
        assert "\x1b" not in said
        assert not [line for line in said.splitlines() if line.startswith("2026-01-01")]
