"""Sign in from your own program: every state owns its words, so there is nothing to map."""

import asyncio
from contextlib import aclosing

import nedura


async def main() -> int:
    ok = False
    async with aclosing(nedura.run_sign_in()) as states:
        async for state in states:
            print(state.copy_terminal)
            ok = state.ok
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
