"""nedura: sign in a self-hosted install, and update it in place together with its whole fleet.

Two async generators hold all the logic; every surface only formats what they yield::

    async with aclosing(nedura.run_sign_in()) as states:
        async for state in states:
            print(state.copy)

Importing this package is cheap: public names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nedura._lazy import attach
from nedura._version import __version__

if TYPE_CHECKING:
    from nedura.errors import NeduraError
    from nedura.fleet.member import FleetMember
    from nedura.product import Build, Product
    from nedura.signin.flow import run_sign_in, sign_in
    from nedura.update.pipeline import update
    from nedura.update.planning.plan import plan_update
    from nedura.wire import Event, ForeignEvent, to_wire

__all__ = [
    "Build",
    "Event",
    "FleetMember",
    "ForeignEvent",
    "NeduraError",
    "Product",
    "__version__",
    "plan_update",
    "run_sign_in",
    "sign_in",
    "to_wire",
    "update",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "Build": "nedura.product",
        "Event": "nedura.wire",
        "FleetMember": "nedura.fleet.member",
        "ForeignEvent": "nedura.wire",
        "NeduraError": "nedura.errors",
        "Product": "nedura.product",
        "plan_update": "nedura.update.planning.plan",
        "run_sign_in": "nedura.signin.flow",
        "sign_in": "nedura.signin.flow",
        "to_wire": "nedura.wire",
        "update": "nedura.update.pipeline",
    },
)
