"""The identity table (facts/runtime.md 1.5): rows right, beside the matcher of hermes-agent in the same run.

`./run bench identity_table [--peer FOLDER | --no-peer] [--json]`. Without `--peer` the published package is installed into a
throw-away folder (`pip install --no-deps`); its own names are put into the table for it, on the blank-joined line it takes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._fleet import parser, report
from nedura.fleet import classify
from tests.unit.fleet.test_identity_table import ROWS

PEER = "hermes-agent==0.19.0"
ASK = """
import importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("peer_status", sys.argv[1] + "/gateway/status.py")
module = importlib.util.module_from_spec(spec)
sys.modules["peer_status"] = module
spec.loader.exec_module(module)
print(json.dumps([module.looks_like_gateway_command_line(line) for line in json.load(sys.stdin)]))
"""


def theirs(argv: list[str]) -> str:
    return " ".join(argv).replace("nedura", "hermes").replace("NEDURA", "HERMES")


def ask_peer(folder: Path) -> list[bool]:
    import json

    lines = json.dumps([theirs(argv) for _, argv, *_ in ROWS])
    result = subprocess.run(
        [sys.executable, "-c", ASK, str(folder)], input=lines, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"the peer could not be asked: {result.stderr[-300:]}")
    answers: list[bool] = json.loads(result.stdout)
    return answers


def install_peer(folder: Path) -> None:
    """The package and what its matcher's module imports."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, PEER, "pyyaml", "python-dotenv"], check=True)


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--peer", type=Path)
    arguments.add_argument("--no-peer", action="store_true")
    arguments.add_argument("--show", action="store_true", help="print the rows that the peer has wrong")
    options = arguments.parse_args()
    verdicts = [classify(argv, platform="linux") for _, argv, *_ in ROWS]
    right = [verdict.gateway_run is row[2] for verdict, row in zip(verdicts, ROWS, strict=True)]
    whole = [
        (verdict.gateway_run, verdict.profile, verdict.subcommand) == row[2:]
        for verdict, row in zip(verdicts, ROWS, strict=True)
    ]
    start = time.perf_counter()
    for _ in range(200):
        for _, argv, *_ in ROWS:
            classify(argv, platform="linux")
    spent = (time.perf_counter() - start) / 200 / len(ROWS)
    facts: dict[str, object] = {
        "rows": len(ROWS),
        "wrong": right.count(False),
        "wrong_with_profile_and_subcommand": whole.count(False),
        "microseconds_a_row": spent * 1e6,
    }
    if not options.no_peer:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.peer or Path(scratch)
            if options.peer is None:
                install_peer(folder)
            answers = ask_peer(folder)
        peer_right = [bool(row[2]) is answer for row, answer in zip(ROWS, answers, strict=True)]
        facts["peer"] = PEER
        facts["peer_wrong"] = peer_right.count(False)
        if options.show:
            for row, ok in zip(ROWS, peer_right, strict=True):
                if not ok:
                    print(f"  peer is wrong on row {row[0]}: {' '.join(row[1])}")
    return report(
        "identity_table", facts, {"wrong": 0, "wrong_with_profile_and_subcommand": 0}, as_json=options.json
    )


if __name__ == "__main__":
    sys.exit(main())
