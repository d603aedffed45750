"""A real install with live gateways is updated by its own command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nedura.testing.installs import own_files
from tests.kits.site import world

PROFILES = ("default", "alpha", "beta")

RECORDER = """
import os as _os
with open({place!r}, "a") as _record:
    _record.write(f"{{_os.getpid()}} {{__name__}} {{__file__}}\\n")
"""


def recording(place: Path) -> dict[str, str | bytes | None]:
    """This tree with every module of ours, start hooks beside the path and a .pth writing down who imported it.

    Hooks on the path itself are refused before anything is built: tests/integration/generations/test_candidate.py.
    """
    line = RECORDER.format(place=str(place))
    files: dict[str, str | bytes | None] = {
        name: _after_future(text.decode(), line)
        for name, text in own_files().items()
        if isinstance(text, bytes)
        and name.startswith("nedura/")
        and name.endswith(".py")
        and name not in ("nedura/product.py",)
    }
    return {
        **files,
        "renderers/sitecustomize.py": line,
        "renderers/usercustomize.py": line,
        "evil.pth": f"import os; open({str(place)!r}, 'a').write(f'{{os.getpid()}} pth evil.pth\\n')\n",
    }


def _after_future(text: str, line: str) -> str:
    marker = "from __future__ import annotations\n"
    if marker in text:
        return text.replace(marker, marker + line, 1)
    return text if not text.strip() else text + line


@pytest.mark.timeout(120)
def test_nothing_runs_pulled_code_in_the_old_process(tmp_path: Path) -> None:
    place = tmp_path / "record"
    with world() as here:
        here.start("default")
        here.site.origin.commit(recording(place), "a version that records who imports it")
        log = tmp_path / "out"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(here.site.launcher), "update", "--json"], env=here.environ, stdout=out, stderr=out
            )
            code = process.wait(100)
        events = [json.loads(text) for text in log.read_text().splitlines()]
        assert code == 0, str(events[-1])
        parent = next(event["pid"] for event in events if event["kind"] == "update_started")
        child = next(event["pid"] for event in events if event["kind"] == "completion_started")
    assert parent == process.pid
    records = [text.split(" ", 2) for text in place.read_text().splitlines()]
    pids = {int(pid) for pid, _, _ in records}
    assert child in pids, "the completion ran the new code"
    assert parent not in pids
    assert any(
        name == "nedura.update.completion.second_half" and int(pid) == child for pid, name, _ in records
    )
    assert all("/generations/000002/" in where for _, name, where in records if name.startswith("nedura"))


@pytest.mark.timeout(120)
def test_three_gateways_roll_to_a_new_version_and_a_second_run_restarts_nobody() -> None:
    with world() as here:
        here.start(*PROFILES)
        before = here.pids(PROFILES)
        new = here.site.origin.commit({"nedura/_note.py": "NOTE = 1\n"}, "newer")
        code, events = here.update()
        assert code == 0, events[-1]
        after = here.pids(PROFILES)
        assert all(after[name] != before[name] for name in PROFILES)
        receipt = here.latest()
        assert (receipt["outcome"], receipt["exit_code"]) == ("success", 0)
        assert receipt["post_update"]["sha"] == new
        assert [row["state"] for row in receipt["fleet"]] == ["current"] * 3
        assert sorted(row["profile"] for row in receipt["gateway_restart"]["restarted"]) == sorted(PROFILES)
        assert all(row["downtime_ms"] > 0 for row in receipt["gateway_restart"]["restarted"])
        assert sorted(receipt["snapshots"]) == sorted(PROFILES)
        stages = [(row["name"], row["outcome"]) for row in receipt["stages"]]
        assert [name for name, _ in stages] == [
            "plan", "snapshot", "prepare", "validate", "commit", "first_member", "maintenance", "restart", "verify",
        ]  # fmt: skip
        assert {outcome for _, outcome in stages} == {"success"}
        owed = [path.name for path in (here.folder / "locks").glob("host-update-restart-*")]
        assert owed == []
        assert not (here.site.paths.folder / "source-completion-pending").exists()
        code, events = here.update()
        assert code == 0
        assert here.pids(PROFILES) == after
        assert events[-1]["changed"] is False
        logs = here.command("logs", "update", "--json")
        assert [json.loads(line)["outcome"] for line in logs.stdout.splitlines()] == ["success", "success"]


@pytest.mark.timeout(120)
def test_a_version_whose_gateway_does_not_boot_for_real_is_taken_back(tmp_path: Path) -> None:
    """The probe passes (NEDURA_PROBE is set), the first real member does not: the old parent takes the pointer back."""
    with world() as here:
        here.start("default", "alpha")
        source = own_files()["renderers/gateway/nedura_gateway/main.py"]
        assert isinstance(source, bytes)
        broken = source.decode().replace(
            "    set_up_logging(verbose=bool(args.verbose))\n",
            "    set_up_logging(verbose=bool(args.verbose))\n"
            "    if os.environ.get('NEDURA_PROBE') != '1':\n        raise SystemExit(9)\n",
        )
        assert broken.encode() != source
        here.site.origin.commit({"renderers/gateway/nedura_gateway/main.py": broken}, "does not boot")
        code, events = here.update("--no-backup")
        assert code == 1, events[-1]
        receipt = here.latest()
        assert receipt["outcome"] == "failed"
        assert receipt["stop_reason"].startswith("first_member:")
        assert here.current == "000001"
        status = here.command("fleet", "status", "--json")
        rows = json.loads(status.stdout.splitlines()[-1])["rows"]
        assert sorted((row["profile"], row["state"]) for row in rows) == [
            ("alpha", "current"),
            ("default", "current"),
        ]
        assert list((here.folder / "locks").glob("host-update-restart-*")) == []
        code, events = here.update("--no-backup")
        assert code == 1
        assert events[-1]["stop_class"] == "failed_before"
