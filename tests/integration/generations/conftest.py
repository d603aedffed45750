"""An installed toy, and how to run the sealed stages on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.testing.installs import Site, make_site
from tests.kits.sealed import Stages


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path)


@pytest.fixture
def stages(site: Site) -> Stages:
    return Stages(site)
