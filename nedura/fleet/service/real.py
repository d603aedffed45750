"""The service verbs of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from nedura.fleet.scope import homes_of
from nedura.fleet.service.launchd import LaunchdManager
from nedura.fleet.service.manager import ServiceManager
from nedura.fleet.service.place import ServicePlace, account_named, real_place
from nedura.fleet.service.systemd import SystemdManager
from nedura.fleet.service.verbs import Services
from nedura.homes import root_home
from nedura.product import NEDURA, Product

__all__ = ["gateway_services"]


def gateway_services(
    home: Path,
    *,
    run_as: str = "",
    place: ServicePlace | None = None,
    environ: Mapping[str, str] | None = None,
    product: Product = NEDURA,
) -> Services:
    """The verbs for a home, with the managers that this platform has.

    Args:
        home: the home.
        run_as: user of a system service; default who called.
        place: the machine; default the real one.
        environ: the environment; default this process's.
        product: names.

    Raises:
        UsageError: there is no such user.
    """
    environ = dict(os.environ if environ is None else environ)
    place = real_place(environ) if place is None else place
    if run_as:
        place = attrs.evolve(place, account=account_named(run_as))
    managers: list[ServiceManager] = []
    if place.platform.startswith("linux"):
        managers = [
            SystemdManager(scope, place, environ=environ, product=product) for scope in ("user", "system")
        ]
    elif place.platform == "darwin":
        managers = [LaunchdManager(place, environ=environ, product=product)]
    return Services(
        home=home,
        place=place,
        managers=managers,
        homes=homes_of(root_home(home), home),
        product=product,
        environ=environ,
    )
