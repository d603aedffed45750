"""A daemon of your own in the fleet: claimed, drained, restarted and verified by every update."""

import asyncio
import os
from pathlib import Path

import nedura


async def main() -> int:
    home = Path(os.environ["NEDURA_HOME"])
    async with nedura.FleetMember(home) as member:
        async with member.turn():  # a restart waits for this
            print("one unit of work", flush=True)
        await member.wait_stopped()
    return member.exit_code


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
