"""The pictures of docs/captures: exported by the program, self-contained, and showing what they claim."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from demo.steps import STEPS
from nedura.skin_data import BUILT_IN
from nedura.skins import load_skin
from nedura_cli.shell.login import HINTS

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "captures"
SVG = "{http://www.w3.org/2000/svg}"

CLAIMS = {
    "demo-update": [
        *STEPS[:5],
        "Looking at the fleet",
        "Restarting one member first",
        r"waiting for 1 running turn",
    ],
    "demo-end": [*STEPS, r"default +\d+ +[0-9a-f]{8} +up to date", r"Everything held in \d+ s\."],
    "shell-login": [r"Signing in: code [A-Z]{4}-[A-Z]{4}, \d+:\d\d left", *HINTS],
    "shell-answer": [
        "Signed in as alice@example.test",
        "You said: hello there",
        "/skin +list or choose a skin",
    ],
    **{f"skin-{name}": ["Waiting and thinking", "Status bar", "restart owed"] for name in BUILT_IN},
}
"""What each picture must show."""


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """The program that makes them."""
    spec = importlib.util.spec_from_file_location("make_captures", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(name: str) -> str:
    """The lines of a picture as they are seen: its texts by row and column."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for text in ElementTree.parse(FOLDER / f"{name}.svg").getroot().iter(f"{SVG}text"):
        place = float(text.get("x", 0)), "".join(text.itertext()).replace("\xa0", " ")
        rows.setdefault(float(text.get("y", 0)), []).append(place)
    lines = []
    for row in sorted(rows):
        line = ""
        for left, words in sorted(rows[row]):
            line = line.ljust(round(left / 12.2)) + words
        lines.append(line.rstrip())
    return "\n".join(lines)


def test_there_is_a_picture_for_each_claim_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_picture_shows_what_it_claims(name: str) -> None:
    text = shown(name)
    for claim in CLAIMS[name]:
        assert re.search(claim, text), claim


@pytest.mark.parametrize("name", CLAIMS)
def test_a_picture_asks_nobody_and_names_no_place_of_the_machine_that_made_it(name: str) -> None:
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert "Generated with Rich" in svg
    assert not re.search(r"@font-face|<script|<image|<foreignObject|href=|url\((?!#)", svg)
    text = re.sub(r"/tmp/nedura-demo-\S+", "", shown(name))
    assert not re.search(r"(?<![\w/])/(?:work|root|home|tmp)/", text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_skins_are_drawn_by_the_program_as_it_is_now(make: ModuleType, name: str) -> None:
    """When this fails after a change of a skin or its preview: `python docs/captures/make.py skins`."""
    assert (FOLDER / f"skin-{name}.svg").read_text(encoding="utf-8") == make.skin(name)
    assert load_skin(Path("/nonexistent"), name).branding.welcome in shown(f"skin-{name}")


def test_the_picture_of_a_sign_in_shows_one_code_everywhere() -> None:
    text = shown("shell-login")
    codes = set(re.findall(r"\b[A-Z]{4}-[A-Z]{4}\b", text))
    assert len(codes) == 1
    assert re.search(rf"^http\S+user_code={codes.pop()}$", text, re.MULTILINE)
