from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.signin.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return World(home=home)
