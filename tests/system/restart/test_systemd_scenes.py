from __future__ import annotations

import pytest

from tests.system.restart.odd_scenes import SCENES as ODD_SCENES
from tests.system.restart.runner import run_scene
from tests.system.restart.scenes import SCENES
from tests.system.restart.service_scenes import SCENES as SERVICE_SCENES
from tests.system.restart.stray_scenes import SCENES as STRAY_SCENES
from tests.system.restart.system_scenes import SCENES as SYSTEM_SCENES

# seconds of a quiet machine are a tenth of this
pytestmark = [pytest.mark.system, pytest.mark.root, pytest.mark.timeout(120)]


def others(scenes: object) -> list[str]:
    """Scenes that are no field report; those run from tests/cases."""
    return sorted(name for name in scenes if not name.startswith("c0") and not name.startswith("c1"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", others(SCENES))
def test_under_a_real_user_manager(name: str) -> None:
    run_scene("tests.system.restart.scenes", name)


@pytest.mark.parametrize("name", others(ODD_SCENES))
def test_odd_units_under_a_real_user_manager(name: str) -> None:
    run_scene("tests.system.restart.odd_scenes", name)


@pytest.mark.parametrize("name", others(SERVICE_SCENES))
def test_service_verbs_under_a_real_user_manager(name: str) -> None:
    run_scene("tests.system.restart.service_scenes", name)


@pytest.mark.parametrize("name", others(STRAY_SCENES))
def test_services_that_do_not_go_with_what_runs(name: str) -> None:
    run_scene("tests.system.restart.stray_scenes", name)


@pytest.mark.parametrize("name", others(SYSTEM_SCENES))
def test_the_command_under_a_real_system_manager(name: str) -> None:
    run_scene("tests.system.restart.system_scenes", name, mode="system")
