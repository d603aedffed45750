"""An updater that was started inside a gateway's control group: `python -m tests.system.restart.inside HOME RESULT [--stay]`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from nedura.fleet.cgroup import own_unit, scope_prefix
from tests.system.restart.host import restart


async def main(home: Path, result: Path, stay: bool) -> None:
    prefix = () if stay else await scope_prefix("nedura-update")
    if prefix:
        os.execv(
            prefix[0], [*prefix, sys.executable, "-m", "tests.system.restart.inside", str(home), str(result)]
        )
    from nedura.fleet.inventory import look

    member = await look(home)
    assert member is not None
    events = await restart([member])
    unit = own_unit()
    result.write_text(
        json.dumps({"unit": unit.name if unit else "", "kinds": [event.kind for event in events]})
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), "--stay" in sys.argv))
