"""Field reports of area `skins`, by their ids."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style

from nedura.skin_colors import FAINT_CONTRAST, ON_TERMINAL, contrast
from nedura.skin_data import BUILT_IN
from nedura.skins import DARK_BACKGROUND, LIGHT_BACKGROUND, load_active, load_skin
from nedura_cli.elements import StatusFacts, answer_box, banner
from nedura_cli.look import Look
from nedura_cli.shell.styles import depth_of, style_of
from nedura_cli.shell.talk import Turn
from nedura_cli.skin import preview
from nedura_cli.terminal import Depth, Terminal


def write(home: Path, name: str, text: str) -> None:
    (home / "skins").mkdir(exist_ok=True)
    (home / "skins" / f"{name}.yaml").write_text(text)


def look(home: Path, name: str, *, depth: Depth = 16777216, light: bool = False) -> Look:
    return Look(load_skin(home, name), Terminal(depth=depth, light=light, redraws=True))


def drawn(look: Look, what: object, width: int = 80) -> str:
    stream = io.StringIO()
    look.console(stream, width=width).print(what)
    return stream.getvalue()


# --- C165: a name that leads outside the folder


@pytest.mark.parametrize(
    "name",
    ["../../../etc/passwd", "../../secret", "/etc/passwd", "a\0b", "a/b", "..", ".", "", "a.yaml", "ä"],
)
def test_c165_a_name_with_path_parts_reads_nothing(tmp_path: Path, name: str) -> None:
    home = tmp_path / "h"
    home.mkdir()
    (tmp_path / "secret.yaml").write_text("name: secret\n")
    opened: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open":
            opened.append(str(arguments[0]))

    watching = True
    sys.addaudithook(watch)
    try:
        skin = load_skin(home, name)
    finally:
        watching = False
    assert skin.name == "default"
    assert skin.warnings
    assert not [path for path in opened if "skins" in path or "passwd" in path or "secret" in path]


def test_c165_config_and_links_lead_nowhere_either(tmp_path: Path) -> None:
    home = tmp_path / "h"
    (home / "skins").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text("name: out\ndescription: SECRET\n")
    (home / "config.yaml").write_text("display: {skin: ../../secret}\n")
    assert load_active(home).name == "default"
    (home / "skins" / "out.yaml").symlink_to(tmp_path / "secret.yaml")
    assert "SECRET" not in str(load_skin(home, "out"))


# --- C167: a colour that one renderer takes and the other does not

MIXED = """\
name: mixed
colors: {banner_title: 'ff0000', prompt: 'bright_red', banner_dim: '#12', response_border: 'rgb(1,2,3)',
         banner_text: 0xFFFFFF, banner_accent: null, banner_border: ['#fff'], ui_ok: '#00FF00'}
"""
BAD = ("banner_title", "prompt", "banner_dim", "response_border", "banner_text", "banner_border")


def test_c167_one_validator_for_both_renderers(tmp_path: Path) -> None:
    write(tmp_path, "mixed", MIXED)
    skin, default = load_skin(tmp_path, "mixed"), load_skin(tmp_path, "default")
    for key in (*BAD, "banner_accent"):
        assert skin.colors[key] == default.colors[key]
    assert skin.colors["ui_ok"] == "#00ff00"
    assert len(skin.warnings) == len(BAD)
    for key in BAD:
        assert sum(f"colors.{key} " in warning for warning in skin.warnings) == 1
    mixed = look(tmp_path, "mixed")
    assert isinstance(style_of(mixed), Style)
    assert drawn(mixed, preview(mixed, 80))


# --- C168: text that cannot be read on a light terminal


def test_c168_every_colour_is_adjusted_by_luminance_also_a_users(tmp_path: Path) -> None:
    colors = ", ".join(f"{key}: '#FFF8DC'" for key in ON_TERMINAL)
    write(tmp_path, "pale", f"name: pale\ncolors: {{{colors}}}\n")
    pale = load_skin(tmp_path, "pale")
    for key in ON_TERMINAL:
        assert contrast(pale.color(key, light=True), LIGHT_BACKGROUND) >= FAINT_CONTRAST
        assert pale.color(key, light=False) == "#fff8dc"
        assert contrast(pale.color(key, light=False), DARK_BACKGROUND) >= FAINT_CONTRAST
    terminal = Terminal.detect(Tty(), {"TERM": "xterm", "COLORFGBG": "0;15"})
    assert terminal.light
    assert Look(pale, terminal).color("banner_text") != "#fff8dc"


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("environ", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_c168_no_color_and_dumb_give_no_codes(tmp_path: Path, environ: dict[str, str]) -> None:
    found = Look(load_skin(tmp_path, "ares"), Terminal.detect(Tty(), environ))
    assert not re.search(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])", drawn(found, preview(found, 80)))
    assert depth_of(found) == ColorDepth.DEPTH_1_BIT


# --- C169: keys that some surface ignores


def test_c169_empty_text_means_none_and_an_empty_list_falls_back(tmp_path: Path) -> None:
    write(
        tmp_path,
        "s",
        "name: s\ntool_emojis: {terminal: ''}\nspinner: {waiting_faces: []}\nbranding: {agent_name: X}\ntool_prefix: ''\n",
    )
    skin = load_skin(tmp_path, "s")
    assert skin.emoji("terminal") == ""
    assert skin.emoji("read_file") == "📖"
    assert skin.spinner.waiting_faces == load_skin(tmp_path, "default").spinner.waiting_faces
    found = look(tmp_path, "s")
    assert found.tool_line("terminal", "ls") == "terminal ls"


@pytest.mark.parametrize("width", [40, 80])
def test_c169_the_agents_name_is_in_every_form_of_the_banner(tmp_path: Path, width: int) -> None:
    write(tmp_path, "s", "name: s\nbranding: {agent_name: Zoe, response_label: ' Zoe says '}\n")
    found = look(tmp_path, "s", depth=0)
    assert "Zoe" in drawn(found, banner(found, StatusFacts(), width), width)
    assert "Zoe says" in drawn(found, answer_box(found, "x", width), width)


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_c169_every_surface_draws_from_one_object(tmp_path: Path, name: str) -> None:
    found = look(tmp_path, name)
    skin = found.skin
    said: list[str] = []
    turn = Turn(found, said.append, said.append, lambda: None)
    assert any(turn.waiting().startswith(face) for face in skin.spinner.waiting_faces)
    assert found.tool_line("terminal", "x").startswith(skin.tool_prefix)
    rules = dict(style_of(found).style_rules)
    assert rules["prompt"] == skin.color("prompt")
    assert skin.colors["status_bar_bg"] in rules["status"]
