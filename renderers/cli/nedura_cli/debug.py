"""`nedura debug bundle`."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from nedura.bundle import collect_bundle, write_bundle
from nedura.homes import process_home, root_home
from nedura.profiles import list_profiles
from nedura_cli.output import Output

__all__ = ["bundle"]


def _plan() -> Any:
    from nedura import plan_update
    from nedura.wire import to_wire

    return to_wire(asyncio.run(plan_update()))


def bundle(args: argparse.Namespace, output: Output) -> int:
    """Write a redacted bundle, or only show what it would hold."""
    root, now = root_home(process_home()), time.time()
    names = [profile.name for profile in list_profiles(root)]
    made = collect_bundle(root, names, now=now, reports={"plan.json": _plan})
    for item in made.items:
        output.line(f"  {item.name}  {len(item.text.encode())} bytes")
    for name, reason in made.left_out.items():
        output.line(f"  {name}  left out: {reason}")
    record: dict[str, Any] = {
        "kind": "debug_bundle",
        "files": [item.name for item in made.items],
        "left_out": dict(made.left_out),
    }
    if args.preview:
        output.record({**record, "path": ""})
        output.line(
            "Nothing was written. Without --preview it goes into one file; it is never sent anywhere."
        )
        return 0
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    path = Path(args.output) if args.output else root / "debug" / f"nedura-debug-{stamp}.zip"
    size = write_bundle(made, path.absolute())
    output.record({**record, "path": str(path), "size": size})
    output.line(f"Written: {path} ({size} bytes). Look into it before you share it.")
    return 0
