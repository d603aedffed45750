"""Names of definitions. No IO beyond resolving the home.

A custom home never gets the production name: its suffix is a hash of its path (#106611: a scratch home once removed the real service).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from nedura.homes import PROFILE_NAME, profiles_root
from nedura.product import NEDURA, Product

__all__ = ["label_name", "service_suffix", "unit_name"]


def service_suffix(home: Path, native: Path) -> str:
    """Suffix of a home's definitions: empty for the account's native home, its profiles' names, else 8 hex digits of the path's SHA-256.

    Args:
        home: the home that is served.
        native: the account's native home (`~/.nedura` of the real account).
    """
    real, base = Path(os.path.realpath(home)), Path(os.path.realpath(native))
    if real == base:
        return ""
    if real.parent == profiles_root(base) and PROFILE_NAME.match(real.name):
        return real.name
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:8]


def unit_name(home: Path, native: Path, product: Product = NEDURA) -> str:
    """Systemd unit of a home."""
    suffix = service_suffix(home, native)
    return f"{product.unit_families[0]}{'-' if suffix else ''}{suffix}.service"


def label_name(home: Path, native: Path, product: Product = NEDURA) -> str:
    """Launchd label of a home."""
    suffix = service_suffix(home, native)
    return f"{product.label_families[0]}{'-' if suffix else ''}{suffix}"
