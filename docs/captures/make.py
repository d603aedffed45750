"""Makes the pictures of this folder from the program itself: `python docs/captures/make.py [demo] [skins] [shell]`.

`demo` runs the whole demo and keeps two moments of its live view; `skins` draws every built-in skin; `shell` types into the real shell on
a pty against the development portal.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from demo.events import DemoFinished  # noqa: E402
from demo.story import run_demo  # noqa: E402
from demo.views import Picture  # noqa: E402
from nedura.config import edit_config, set_value  # noqa: E402
from nedura.skin_data import BUILT_IN  # noqa: E402
from nedura.skins import load_skin  # noqa: E402
from nedura.testing.portal import portal_process  # noqa: E402
from nedura.wire import Event  # noqa: E402
from nedura_cli.look import Look  # noqa: E402
from nedura_cli.skin import preview  # noqa: E402
from nedura_cli.terminal import Terminal  # noqa: E402
from tests.kits.terminal import Screen, open_screen  # noqa: E402

FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without the web font: a picture must not call anybody when it is looked at."""

LIGHT = TerminalTheme((255, 255, 255), (30, 30, 30), [(0, 0, 0)] * 8, [(0, 0, 0)] * 8)


def look(name: str, *, light: bool = False) -> Look:
    """A built-in skin in full colour."""
    return Look(load_skin(Path("/nonexistent"), name), Terminal(depth=16777216, light=light, redraws=True))


def exported(name: str, console: Console, title: str, *, light: bool = False) -> str:
    """One SVG without anything that changes from run to run."""
    theme = LIGHT if light else DIMMED_MONOKAI
    svg = console.export_svg(title=title, theme=theme, unique_id=name, code_format=FORMAT)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def save(name: str, svg: str) -> None:
    """Write one SVG."""
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")
    sys.stdout.write(f"{HERE / name}.svg\n")


def recorder(shown: Look, width: int) -> Console:
    """A console that keeps what is drawn."""
    return shown.console(io.StringIO(), record=True, width=width)


def skin(name: str) -> str:
    """A built-in skin, the light one on a light terminal."""
    light = name == "daylight"
    shown = look(name, light=light)
    console = recorder(shown, 84)
    console.print(preview(shown, 84))
    return exported(f"skin-{name}", console, f"nedura skin show {name}", light=light)


def skins() -> None:
    """Every built-in skin."""
    for name in BUILT_IN:
        save(f"skin-{name}", skin(name))


def demo() -> None:
    """Two moments of the real demo: while a gateway finishes its turn, and the end."""
    shown = look("default")
    picture = Picture(shown)

    def keep(name: str) -> None:
        console = recorder(shown, 104)
        console.height = 60
        console.print(picture)
        save(name, exported(name, console, "./run demo"))

    def tell(event: Event) -> None:
        picture.show(event)
        if event.kind == "drain_waiting" and not (HERE / ".middle").exists():
            (HERE / ".middle").touch()
            keep("demo-update")
        if isinstance(event, DemoFinished):
            keep("demo-end")

    (HERE / ".middle").unlink(missing_ok=True)
    try:
        asyncio.run(run_demo(ROOT, tell, keep=False))
    finally:
        (HERE / ".middle").unlink(missing_ok=True)


def _segments(screen: Screen) -> Segments:
    """What pyte drew, cell by cell, as rich draws it."""
    drawn: list[Segment] = []
    for row in range(screen.rows):
        cells = [
            (screen.cell(row, column).data, _style(screen.cell(row, column)))
            for column in range(screen.columns)
        ]
        for style, run in itertools.groupby(cells, key=lambda cell: cell[1]):
            drawn.append(Segment("".join(data for data, _ in run), style))
        drawn.append(Segment.line())
    return Segments(drawn)


def _style(cell: Any) -> Style:
    color, background = (f"#{value}" if len(value) == 6 else None for value in (cell.fg, cell.bg))
    return Style(color=color, bgcolor=background, bold=cell.bold, reverse=cell.reverse)


def shell() -> None:
    """The real shell: a sign-in beside the prompt, then an answer."""
    with tempfile.TemporaryDirectory(prefix="nedura-capture-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        with portal_process(Path(folder), "--interval", "1") as portal:
            portal.account("alice@example.test", tier="paid")
            portal.knobs(inference="self")
            urls = {"NEDURA_PORTAL_BASE_URL": portal.url, "NOUS_INFERENCE_BASE_URL": f"{portal.url}/v1"}
            wanted = {**urls, "COLORTERM": "truecolor"}
            with open_screen(home=home, rows=26, columns=92, environ=wanted) as screen:
                _play(screen, portal.wait_for_code, portal.decide, home)


def _play(screen: Screen, code: Callable[[], str], decide: Callable[[str], object], home: Path) -> None:
    screen.until("gateway")
    screen.send("/login\r")
    screen.until("share it with nobody")
    screen.until("c copies")
    _shot(screen, "shell-login")
    decide(code())
    screen.until("Signed in")
    edit_config(home, lambda content: set_value(content, "model.default", "nous/hermes-4-405b"))
    screen.send("/status\r")
    screen.until("Gateway: not running.")
    screen.send("hello there\r")
    screen.until("You said: hello there")
    screen.send("/sk")
    screen.until("list or choose a skin")
    _shot(screen, "shell-answer")


def _shot(screen: Screen, name: str) -> None:
    screen.pump(0.4)
    console = recorder(look("default"), 92)
    console.print(_segments(screen))
    save(name, exported(name, console, "nedura"))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ["skins", "shell", "demo"]:
        {"skins": skins, "shell": shell, "demo": demo}[wanted]()
