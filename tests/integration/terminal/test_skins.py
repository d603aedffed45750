"""Skins: schema, merge and fall-back rules, hostile files, contrast."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.skin_colors import FAINT_CONTRAST, ON_TERMINAL, TEXT_CONTRAST, contrast, hex_color, readable
from nedura.skin_data import BUILT_IN, COLOR_KEYS
from nedura.skins import (
    DARK_BACKGROUND,
    LIGHT_BACKGROUND,
    active_name,
    list_skins,
    load_active,
    load_skin,
    parse_skin,
)


def write(home: Path, name: str, text: str) -> Path:
    folder = home / "skins"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_every_built_in_is_complete_and_clean(tmp_path: Path, name: str) -> None:
    skin = load_skin(tmp_path, name)
    assert skin.name == name
    assert not skin.warnings
    assert set(COLOR_KEYS) <= set(skin.colors)
    assert all(hex_color(color) == color for color in skin.colors.values())
    assert len(skin.spinner.waiting_faces) == 5 == len(skin.spinner.thinking_faces)
    assert len(skin.spinner.thinking_verbs) == 8
    assert skin.branding.response_label.startswith(" ")
    assert "/help" in skin.branding.welcome
    assert skin.branding.prompt_symbol == skin.branding.prompt_symbol.strip()


def test_there_are_five_and_ares_has_wings(tmp_path: Path) -> None:
    assert list(BUILT_IN) == ["default", "ares", "mono", "slate", "daylight"]
    assert len(load_skin(tmp_path, "ares").spinner.wings) == 4
    assert load_skin(tmp_path, "default").spinner.wings == ()


def test_a_user_file_is_merged_over_the_default(tmp_path: Path) -> None:
    write(
        tmp_path,
        "mine",
        "name: mine\ncolors:\n  banner_title: '#ABCDEF'\n  ui_tool: '#010203'\nbranding:\n  agent_name: Zoe\n",
    )
    skin = load_skin(tmp_path, "mine")
    default = load_skin(tmp_path, "default")
    assert skin.colors["banner_title"] == "#abcdef"
    assert skin.colors["ui_tool"] == "#010203"
    assert skin.colors["ui_ok"] == default.colors["ui_ok"]
    assert skin.branding.agent_name == "Zoe"
    assert skin.branding.welcome == default.branding.welcome
    assert skin.tool_prefix == "┊"
    assert skin.light_colors == {}
    assert not skin.warnings


def test_stand_ins_for_missing_menu_colours(tmp_path: Path) -> None:
    write(
        tmp_path,
        "m",
        "name: m\ncolors: {completion_menu_bg: '#111111', completion_menu_current_bg: '#222222'}\n",
    )
    colors = load_skin(tmp_path, "m").colors
    assert colors["completion_menu_meta_bg"] == "#111111"
    assert colors["completion_menu_meta_current_bg"] == "#222222" == colors["selection_bg"]


def test_null_means_missing_everywhere(tmp_path: Path) -> None:
    text = (
        "name: n\ncolors: {banner_title: #FFD700\n  }\nspinner: {wings: null, waiting_faces: null}\n"
        "branding: {welcome: null}\ntool_prefix: null\ntool_emojis: {terminal: null}\n"
        "description: null\nbanner_logo: null\n"
    )
    write(tmp_path, "n", text)
    skin, default = load_skin(tmp_path, "n"), load_skin(tmp_path, "default")
    assert (skin.colors, skin.spinner, skin.branding) == (default.colors, default.spinner, default.branding)
    assert skin.emoji("terminal") == "💻"
    assert not skin.warnings


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("name: [x\n", "line"),
        ("- a\n", "keys and values"),
        ("description: no name\n", "no name"),
        ("name: x\ncolors: 7\n", "colors"),
        ("name: other\n", "file name"),
        ("name: x\nspinner: {wings: [[a, b], [c]]}\n", "wings"),
        ("name: !!python/object/apply:os.system ['id']\n", "not allowed"),
        ("name: x\ntool_prefix: [a]\n", "tool_prefix"),
    ],
)
def test_a_broken_file_falls_back_and_says_why(tmp_path: Path, text: str, warning: str) -> None:
    write(tmp_path, "x", text)
    skin = load_skin(tmp_path, "x")
    assert skin.colors == load_skin(tmp_path, "default").colors
    assert any(warning in line for line in skin.warnings), skin.warnings


def test_a_broken_file_over_a_built_in_leaves_the_built_in(tmp_path: Path) -> None:
    write(tmp_path, "ares", "name: [")
    skin = load_skin(tmp_path, "ares")
    assert skin.colors == parse_skin(BUILT_IN["ares"], "ares").colors
    assert skin.warnings


def test_the_list_marks_what_is_the_users(tmp_path: Path) -> None:
    write(tmp_path, "mine", "name: mine\ndescription: d\n")
    write(tmp_path, "slate", "name: slate\ndescription: over\n")
    write(tmp_path, "broken", "name: [")
    (tmp_path / "skins" / "old.yml").write_text("name: old\n")
    found = {entry.name: entry for entry in list_skins(tmp_path)}
    assert list(found) == ["default", "ares", "mono", "slate", "daylight", "mine"]
    assert found["slate"].replaces
    assert found["slate"].description == "over"
    assert found["mine"].source is not None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "default"),
        ("display: {skin: ' ares '}", "ares"),
        ("display: {skin: 7}", "default"),
        ("display: {skin: ''}", "default"),
        ("display: [", "default"),
        ("display: ares", "default"),
    ],
)
def test_the_configured_name(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    assert active_name(tmp_path) == name
    assert load_active(tmp_path).name == name


def test_auto_is_an_unknown_name(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("display: {skin: auto}")
    skin = load_active(tmp_path)
    assert skin.name == "default"
    assert "auto" in skin.warnings[0]


HOSTILE = "\x1b]52;c;aGk=\x07\x1b[2J\u202eevil\u200b[link=https://evil]x[/link]\n\r\0"


def test_hostile_text_in_every_key_is_harmless(tmp_path: Path) -> None:
    import json

    spinner = {key: [HOSTILE, HOSTILE] for key in ("waiting_faces", "thinking_faces", "thinking_verbs")}
    words = ("agent_name", "welcome", "goodbye", "response_label", "prompt_symbol", "help_header")
    every = {
        "name": "h",
        "description": HOSTILE,
        "colors": {HOSTILE: "#111111", "banner_title": HOSTILE},
        "spinner": {**spinner, "wings": [[HOSTILE, HOSTILE]]},
        "branding": dict.fromkeys(words, HOSTILE),
        "tool_prefix": HOSTILE,
        "tool_emojis": {HOSTILE: HOSTILE},
        "banner_logo": HOSTILE,
        "banner_hero": HOSTILE,
        "customCSS": HOSTILE,
    }  # fmt: skip
    write(tmp_path, "h", json.dumps(every))
    skin = load_skin(tmp_path, "h")
    shown = [
        skin.description, *skin.colors, *skin.colors.values(), *skin.spinner.waiting_faces, *skin.spinner.thinking_faces,
        *skin.spinner.thinking_verbs, *(part for pair in skin.spinner.wings for part in pair), skin.branding.agent_name,
        skin.branding.welcome, skin.branding.goodbye, skin.branding.response_label, skin.branding.prompt_symbol,
        skin.branding.help_header, skin.tool_prefix, *skin.tool_emojis, *skin.tool_emojis.values(), *skin.warnings,
        *"\n".join(skin.art.values()).split("\n"),
    ]  # fmt: skip
    for text in shown:
        assert text.isprintable(), repr(text)


def test_a_huge_file_and_a_link_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "big", "name: big\n#" + "x" * (300 * 1024))
    secret = tmp_path / "secret.yaml"
    secret.write_text("name: out\ndescription: SECRET\n")
    os.symlink(secret, tmp_path / "skins" / "out.yaml")
    os.mkfifo(tmp_path / "skins" / "pipe.yaml")
    for name in ("big", "out", "pipe"):
        skin = load_skin(tmp_path, name)
        assert skin.name == "default"
        assert "SECRET" not in str(skin)
    assert [entry.name for entry in list_skins(tmp_path)] == list(BUILT_IN)


colors = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


@given(colors, st.sampled_from(sorted(ON_TERMINAL)), st.sampled_from([LIGHT_BACKGROUND, DARK_BACKGROUND]))
def test_every_colour_on_the_terminals_background_can_be_read(color: str, key: str, background: str) -> None:
    found = readable(key, color, background)
    assert hex_color(found) == found
    assert contrast(found, background) >= min(FAINT_CONTRAST, TEXT_CONTRAST)
    if contrast(color, background) >= TEXT_CONTRAST:
        assert found == color


@pytest.mark.parametrize("name", list(BUILT_IN))
@pytest.mark.parametrize("light", [True, False])
def test_every_built_in_can_be_read_on_light_and_dark(tmp_path: Path, name: str, light: bool) -> None:
    skin = load_skin(tmp_path, name)
    for key in ON_TERMINAL:
        background = LIGHT_BACKGROUND if light else DARK_BACKGROUND
        assert contrast(skin.color(key, light=light), background) >= FAINT_CONTRAST, (name, key)


@given(st.one_of(st.none(), st.text(), st.integers(), st.lists(st.text())))
def test_the_validator_takes_six_digits_only(value: object) -> None:
    assert hex_color(value) is None or (isinstance(value, str) and len(value) == 7)
