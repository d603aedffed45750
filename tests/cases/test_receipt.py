"""Field reports about receipts, secrets in them, and dashboards that outlive the update they started."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from nedura.errors import UpdateError
from nedura.testing.installs import git
from nedura.update import UpdateOptions, status_by_action
from nedura.update.ledger.receipt import is_finished
from tests.kits.pipeline import Toy, gateway
from tests.kits.site import World, world


async def test_c101_a_failure_is_replaced_by_the_later_success_and_nothing_restarts(tmp_path: Path) -> None:
    """latest.json names the newest run; readers go by the outcome field, not by a stop text that sounds unfinished."""
    toy = Toy(tmp_path / "home", changed=False)
    toy.fleet.runtimes = (gateway("default", toy.home, 11),)
    toy.errors["prepare"] = UpdateError("The fetch failed.", stop_class="fetch_failed")
    await toy.run()
    assert toy.latest()["outcome"] == "failed"
    toy.errors.clear()
    for _ in range(3):
        finished, _ = await toy.run()
        assert toy.latest()["update_id"] == finished.run_id
        assert toy.latest()["outcome"] == "success"
    assert toy.fleet.restarted == []
    assert not toy.debt_armed
    record = toy.latest()
    record["stop_reason"] = "drained"
    assert is_finished(record), "a stop text never reopens a run"


def receipts(here: World) -> list[dict[str, object]]:
    return [{"outcome": row["outcome"], "exit": row["exit_code"]} for row in here.receipts()]


@pytest.mark.timeout(120)
def test_c103_every_way_out_leaves_exactly_one_finished_record() -> None:
    with world() as here:
        code, _ = here.update("--no-probe")
        assert code == 0
        assert receipts(here) == [{"outcome": "success", "exit": 0}]
        holder = subprocess.Popen(["sleep", "60"])
        created = psutil.Process(holder.pid).create_time()
        (here.home / ".nedura-update-in-progress").write_text(
            f"{holder.pid}\n{created:.0f}\nct:{created:.3f}\n"
        )
        code, events = here.update()
        holder.kill()
        holder.wait()
        assert code == 2
        assert events[-1]["stop_class"] == "lock_held"
        assert sorted(map(str, receipts(here))) == sorted(
            map(str, [{"outcome": "success", "exit": 0}, {"outcome": "refused", "exit": 2}])
        )
        assert here.latest()["outcome"] == "success", (
            "a refused run leaves latest.json to the run that holds the lock"
        )
        here.site.origin.folder.rename(here.folder / "gone")
        code, events = here.update()
        assert code == 1
        assert [row["outcome"] for row in receipts(here)].count("failed") == 1
        assert len(receipts(here)) == 3
        assert here.latest()["outcome"] == "failed"
        assert all(row["finished_at"] for row in here.receipts())


async def test_c105_a_dashboard_that_was_restarted_reads_its_result_from_the_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = "ab" * 16
    toy = Toy(tmp_path / "home")
    monkeypatch.setenv("NEDURA_ACTION_ID", action)
    seen: list[str] = []

    def restarted_dashboard(run: object) -> None:
        """A fresh process knows the id and nothing else."""
        status = status_by_action(toy.home, action)
        assert status is not None
        seen.append(status.outcome)

    toy.hooks["validate"] = restarted_dashboard
    await toy.run(UpdateOptions())
    status = status_by_action(toy.home, action)
    assert status is not None
    assert seen == ["running"]
    assert (status.outcome, status.exit_code) == ("success", 0)


def grep(place: Path, needles: list[bytes], allowed: set[str]) -> list[str]:
    found = []
    for path in place.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.name in allowed or ".git" in path.parts:
            continue
        content = path.read_bytes()
        found += [f"{path.relative_to(place)}" for needle in needles if needle in content]
    return found


@pytest.mark.timeout(120)
def test_c188_a_token_in_the_remote_url_is_nowhere_but_in_its_store() -> None:
    token = "ghp_FAKE_0123456789"
    needles = [token.encode(), quote(token, safe="").encode(), base64.b64encode(f"u:{token}".encode()),
               "".join(f"%{byte:02X}" for byte in token.encode()).encode()]  # fmt: skip
    with world() as here:
        record = here.site.paths.record
        value = json.loads(record.read_text())
        value["remote_url"] = f"https://u:{token}@127.0.0.1:1/x.git"
        record.write_text(json.dumps(value))
        outputs = []
        for command in (
            ["update"],
            ["update", "--json"],
            ["update", "--plan"],
            ["logs", "update", "--json"],
            ["debug", "bundle"],
        ):
            done = here.command(*command)
            outputs.append((done.stdout + done.stderr).encode())
        assert here.latest()["outcome"] == "failed"
        for needle in needles:
            assert not [number for number, text in enumerate(outputs) if needle in text]
        assert grep(here.home, needles, {"install.json"}) == []
        assert token in record.read_text(), "the trap: its store does hold it"
        bundle = next((here.home / "debug").glob("*.zip"))
        import zipfile

        with zipfile.ZipFile(bundle) as archive:
            everything = b"\n".join(archive.read(name) for name in archive.namelist())
        assert all(needle not in everything for needle in needles)


@pytest.mark.timeout(120)
def test_c185_no_file_of_an_update_is_open_to_others_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        with world() as here:
            here.start("default")
            secret = here.home / ".env"
            secret.write_text("TOKEN=x\n")
            secret.chmod(0o600)
            here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
            code, events = here.update("--backup", "--no-probe")
            assert code == 0, events[-1]
            here.command("debug", "bundle")
            for path in here.home.rglob("*"):
                if {"bin", "generations", "envs", "repo.git"} & set(
                    path.relative_to(here.home).parts
                ) or path.is_symlink():
                    continue  # code, readable by design
                mode = stat.S_IMODE(path.lstat().st_mode)
                assert not mode & 0o077, f"{path.relative_to(here.home)} has mode {mode:o}"
    finally:
        os.umask(before)


@pytest.mark.timeout(120)
def test_c189_a_server_that_goes_back_is_refused_whatever_is_remembered_of_it() -> None:
    """What runs is the record: the pinned remote may only go forward, also when nothing that was fetched before is left."""
    with world() as here:
        first = here.site.origin.head
        here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, _ = here.update("--no-probe")
        assert code == 0
        git(here.site.origin.folder, "reset", "-q", "--hard", first)
        for name in ("FETCH_HEAD", "packed-refs"):
            (here.site.paths.repo / name).unlink(missing_ok=True)
        code, events = here.update("--no-probe")
        assert (code, events[-1]["stop_class"]) == (1, "downgrade")
        assert here.current == "000002"
        code, events = here.update("--no-probe", "--allow-downgrade")
        assert code == 0, events[-1]
