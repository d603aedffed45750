"""`nedura skin` as a person meets it, and one look for every terminal."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nedura.skin_data import BUILT_IN, COLOR_KEYS
from nedura.skins import load_skin
from nedura_cli.art import art
from nedura_cli.look import Look
from nedura_cli.skin import preview
from nedura_cli.tables import cells
from nedura_cli.terminal import Depth, Terminal

Run = Callable[..., CompletedProcess[str]]


def test_list_use_and_the_saved_choice(tmp_path: Path, nedura: Run) -> None:
    (tmp_path / "config.yaml").write_text("# mine\n")
    assert nedura("skin", "use", "ares").returncode == 0
    assert (tmp_path / "config.yaml").read_text() == "# mine\ndisplay:\n  skin: ares\n"
    record = json.loads(nedura("skin", "list", "--json").stdout)
    assert record["active"] == "ares"
    assert [skin["name"] for skin in record["skins"]] == list(BUILT_IN)
    assert "*  ares" in nedura("skin", "list").stdout


@pytest.mark.parametrize("name", ["nope", "../../etc/passwd", "/etc/passwd", ""])
def test_what_is_no_skin_is_refused_and_not_saved(tmp_path: Path, nedura: Run, name: str) -> None:
    assert nedura("skin", "use", name).returncode == 2
    assert nedura("skin", "show", name).returncode in ((0,) if name == "" else (2,))
    assert not (tmp_path / "config.yaml").exists()


TEMPLATE_KEYS = (
    *COLOR_KEYS, "light_colors", "dark_colors", "waiting_faces", "thinking_faces", "thinking_verbs", "wings", "agent_name",
    "welcome", "goodbye", "response_label", "prompt_symbol", "help_header", "tool_prefix", "tool_emojis", "banner_logo",
    "banner_hero", "description",
)  # fmt: skip


def test_the_template_holds_every_key_with_comments_and_is_the_base(tmp_path: Path, nedura: Run) -> None:
    assert nedura("skin", "new", "mine", "--from", "slate").returncode == 0
    text = (tmp_path / "skins" / "mine.yaml").read_text()
    for key in TEMPLATE_KEYS:
        assert re.search(rf"^ *{key}:", text, re.MULTILINE), key
    assert text.count("#") > 10
    mine, slate = load_skin(tmp_path, "mine"), load_skin(tmp_path, "slate")
    assert not mine.warnings
    assert (mine.colors, mine.spinner, mine.branding) == (slate.colors, slate.spinner, slate.branding)
    assert nedura("skin", "new", "mine").returncode == 2


def test_setting_a_colour_of_a_built_in_forks_it(tmp_path: Path, nedura: Run) -> None:
    assert nedura("skin", "set", "banner_title", "#ABCDEF").returncode == 0
    skin = load_skin(tmp_path, "default-custom")
    assert skin.colors["banner_title"] == "#abcdef"
    assert "banner_title" not in skin.light_colors
    assert skin.light_colors["ui_ok"] == "#2e7d32"
    assert json.loads(nedura("skin", "list", "--json").stdout)["active"] == "default-custom"
    nedura("skin", "set", "ui_ok", "#010101")
    again = load_skin(tmp_path, "default-custom")
    assert (again.colors["ui_ok"], again.colors["banner_title"]) == ("#010101", "#abcdef")
    assert "# Every colour" in (tmp_path / "skins" / "default-custom.yaml").read_text()


def test_a_bad_colour_is_exit_1_and_a_bad_key_exit_2(tmp_path: Path, nedura: Run) -> None:
    assert nedura("skin", "set", "banner_title", "red").returncode == 1
    assert nedura("skin", "set", "nothing", "#010101").returncode == 2
    assert not (tmp_path / "skins").exists()


def look(home: Path, depth: Depth, *, name: str = "ares", light: bool = False, unicode: bool = True) -> Look:
    terminal = Terminal(depth=depth, light=light, unicode=unicode, redraws=bool(depth))
    return Look(load_skin(home, name), terminal)


def drawn(look: Look, width: int = 80) -> str:
    stream = io.StringIO()
    look.console(stream, width=width).print(preview(look, width))
    return stream.getvalue()


@pytest.mark.parametrize("name", list(BUILT_IN))
@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_preview_names_every_element_and_fits(tmp_path: Path, name: str, width: int) -> None:
    text = drawn(look(tmp_path, 0, name=name), width)
    skin = load_skin(tmp_path, name)
    words = skin.branding
    shown = [words.goodbye, words.prompt_symbol, words.response_label.strip(), words.help_header]
    for part in (*shown, skin.tool_prefix, skin.emoji("terminal"), *COLOR_KEYS):
        assert part in text, part
    assert max(cells(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize(
    ("depth", "code"),
    [(0, None), (16, r"\x1b\[3[0-7]m|\x1b\[9[0-7]m"), (256, r"38;5;\d+"), (16777216, r"38;2;\d+;\d+;\d+")],
)
def test_each_depth_gets_its_own_codes(tmp_path: Path, depth: Depth, code: str | None) -> None:
    """In a process of its own: rich keeps the codes of a style once they were made."""
    program = (
        "import sys; from pathlib import Path; from nedura.skins import load_skin; from nedura_cli.look import Look\n"
        "from nedura_cli.skin import preview; from nedura_cli.terminal import Terminal\n"
        f"look = Look(load_skin(Path({str(tmp_path)!r}), 'ares'), Terminal(depth={depth}, redraws={depth > 0}))\n"
        "look.console(sys.stdout, width=80).print(preview(look, 80))"
    )
    text = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    if code is None:
        assert "\x1b" not in text
    else:
        assert re.search(code, text)
    if depth < 16777216:
        assert "38;2;" not in text


def test_an_ascii_terminal_gets_ascii(tmp_path: Path) -> None:
    for name in BUILT_IN:
        assert drawn(look(tmp_path, 0, name=name, unicode=False)).isascii()


def test_a_long_line_is_not_cut(tmp_path: Path) -> None:
    assert len(look(tmp_path, 0).text("x" * 50_000).plain) == 50_000


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "depth", "light", "unicode"),
    [
        ({"TERM": "xterm"}, 16, False, True),
        ({"TERM": "xterm-256color"}, 256, False, True),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 16777216, False, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, 0, False, True),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, 256, False, True),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, 0, False, True),
        ({}, 0, False, True),
        ({"TERM": "xterm", "COLORFGBG": "0;15"}, 16, True, True),
        ({"TERM": "xterm", "COLORFGBG": "0;default;7"}, 16, True, True),
        ({"TERM": "xterm", "COLORFGBG": "15;0"}, 16, False, True),
        ({"TERM": "xterm", "COLORFGBG": "15;default"}, 16, False, True),
        ({"TERM": "xterm", "LC_ALL": "C"}, 16, False, False),
        ({"TERM": "xterm", "LANG": "en_US.ISO-8859-1"}, 16, False, False),
        ({"TERM": "xterm", "LC_ALL": "C.UTF-8", "LANG": "C"}, 16, False, True),
    ],
)
def test_the_terminal_is_told_from_the_environment(
    environ: dict[str, str], depth: int, light: bool, unicode: bool
) -> None:
    found = Terminal.detect(Tty(), environ)
    assert (found.depth, found.light, found.unicode) == (depth, light, unicode)


def test_no_tty_means_no_codes_and_plain_means_no_redraws() -> None:
    environ = {"TERM": "xterm-256color"}
    assert Terminal.detect(io.StringIO(), environ).depth == 0
    assert not Terminal.detect(Tty(), environ, plain=True).redraws
    assert Terminal.detect(Tty(), environ, background="light").light


def test_art_takes_style_tags_only() -> None:
    text = art("[bold]a[/] [#ff0000]b[/] [link=https://evil]c[/link] [/] d [/]")
    assert text.plain == "a b [link=https://evil]c[/link]  d "
    assert not any("link" in str(span.style) for span in text.spans)


def test_a_broken_skin_file_is_named_with_its_reason_and_its_own_name(tmp_path: Path, nedura: Run) -> None:
    (tmp_path / "skins").mkdir()
    (tmp_path / "skins" / "mine.yaml").write_text("colors: [\n")
    assert "not usable: mine (mine.yaml line 2" in nedura("skin", "list").stderr
    for verb in ("show", "use"):
        done = nedura("skin", verb, "mine")
        assert done.returncode == 2
        assert "The skin mine cannot be used: mine.yaml line 2" in done.stderr
