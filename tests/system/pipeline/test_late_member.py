"""A build that fails on one profile alone, after the first member: the update stands, and that gateway is owed (decision 34)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from nedura.testing.installs import own_files
from tests.kits.checkout import checkout_world
from tests.kits.site import World, world

PROFILES = ("default", "alpha", "beta")


def broken_at(profile: str) -> str:
    """The gateway's code, with a start that fails on one profile's home."""
    source = own_files()["renderers/gateway/nedura_gateway/main.py"]
    assert isinstance(source, bytes)
    line = "    set_up_logging(verbose=bool(args.verbose))\n"
    fault = f"    if os.environ.get('NEDURA_HOME', '').endswith('/{profile}'):\n        raise SystemExit(9)\n"
    broken = source.decode().replace(line, line + fault)
    assert broken.encode() != source
    return broken


@pytest.mark.timeout(200)
@pytest.mark.parametrize("layout", [world, checkout_world], ids=["sealed", "checkout"])
def test_a_member_that_fails_after_the_first_is_owed_and_costs_nobody_else_anything(
    layout: Callable[[], AbstractContextManager[World]],
) -> None:
    with layout() as here:
        here.start(*PROFILES)
        before = here.pids(PROFILES)
        new = here.site.origin.commit({"renderers/gateway/nedura_gateway/main.py": broken_at("beta")}, "bad at beta")
        code, events = here.update("--no-backup")
        import json; open("/tmp/rollx/ev.json","w").write("\n".join(json.dumps(e) for e in events)); json.dump(here.latest(), open("/tmp/rollx/rec.json","w"), indent=1)
        assert code == 0, events[-1]
