"""The service verbs where a definition lies about and its manager does not answer: an image, a rescue shell, a session without a bus."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from nedura.errors import FleetError
from nedura.fleet.inventory import look
from nedura.fleet.service.place import ServicePlace, account_named
from nedura.fleet.service.real import gateway_services
from nedura.fleet.service.verbs import Services
from tests.integration.restart.manual import make_root, running


def verbs_without_manager(root: Path, folder: Path) -> Services:
    """Verbs of a home whose unit file is there and whose machine has no systemctl."""
    account = account_named(pwd.getpwuid(os.geteuid()).pw_name)
    place = ServicePlace(platform="linux", account=account, euid=os.geteuid(), user_units=folder / "units",
                         system_units=folder / "none")  # fmt: skip
    services = gateway_services(root, place=place, environ={"PATH": str(folder / "no-programs")})
    unit = folder / "units" / services.managers[0].name_for(root)
    unit.parent.mkdir(exist_ok=True)
    unit.write_text(f"[Service]\nExecStart={root}/bin/nedura gateway run\nEnvironment=NEDURA_HOME={root}\n")
    return services


async def told(stream: Any) -> list[Any]:
    return [event async for event in stream]


@pytest.mark.parametrize("everyone", [False, True])
async def test_a_manager_that_is_not_there_keeps_no_gateway_from_being_stopped(
    tmp_path: Path, everyone: bool
) -> None:
    root = make_root(tmp_path)
    services = verbs_without_manager(root, tmp_path)
    async with running(root, root):
        assert await told(services.revive(skip=[root])) == []
        events = await told(services.stop(everyone=everyone))
        assert [event.change for event in events if event.kind == "service_changed"] == ["stopped"]
        (note,) = [event for event in events if event.kind == "service_note"]
        assert "no systemctl" in note.copy
        assert await look(root) is None
    # with nothing to stop, what is wrong is the answer
    if not everyone:
        with pytest.raises(FleetError, match="no systemctl"):
            await told(services.stop())
    for stream in (services.start(everyone=True), services.revive(everyone=True)):
        (note,) = await told(stream)
        assert note.failed
