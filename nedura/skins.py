"""Skins: one object for every surface, merged from a user's YAML file or a built-in over the default (facts/runtime.md 7).

A skin file is untrusted text: its name must be a plain file stem, bad keys fall back one by one with a warning that names them, null
means missing, and every string is cleaned before it is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.config import plain
from nedura.errors import ConfigError, RecordMissing, StoreError
from nedura.records import read_bytes
from nedura.skin_colors import ON_TERMINAL, hex_color, readable
from nedura.skin_data import BUILT_IN, COLOR_KEYS, FALLBACKS, TOOL_EMOJIS
from nedura.text import clean

__all__ = [
    "DEFAULT_SKIN",
    "SKIN_NAME",
    "Branding",
    "Skin",
    "SkinEntry",
    "Spinner",
    "active_name",
    "broken_skins",
    "find_skin",
    "list_skins",
    "load_active",
    "load_skin",
    "parse_skin",
    "skin_path",
    "skins_folder",
]

DEFAULT_SKIN: Final = "default"
SKIN_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
"""The name rule: a plain file stem, nothing that leads anywhere (C165)."""

MAX_FILE: Final = 256 * 1024
DARK_BACKGROUND: Final = "#121212"
LIGHT_BACKGROUND: Final = "#ffffff"

_ART_KEYS: Final = ("banner_logo", "banner_hero")


@attrs.frozen(kw_only=True)
class Spinner:
    """What is drawn while somebody waits.

    Attributes:
        waiting_faces, thinking_faces: short faces, one at a time.
        thinking_verbs: what it says that it does.
        wings: pairs around the verb; may be empty.
    """

    waiting_faces: tuple[str, ...]
    thinking_faces: tuple[str, ...]
    thinking_verbs: tuple[str, ...]
    wings: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class Branding:
    """Words of a skin."""

    agent_name: str
    welcome: str
    goodbye: str
    response_label: str
    prompt_symbol: str
    help_header: str


@attrs.frozen(kw_only=True)
class Skin:
    """One complete skin.

    Attributes:
        name: how it was asked for.
        description: one line.
        colors: every colour key with `#rrggbb`.
        light_colors, dark_colors: overlays for light and dark terminals.
        spinner, branding: see there.
        tool_prefix: before each line about a tool; may be empty.
        tool_emojis: tool -> emoji; an empty one means none.
        art: `banner_logo` and `banner_hero`, several lines, may be empty.
        source: its file, None for a built-in.
        warnings: what was wrong with it, one line each.
    """

    name: str
    description: str
    colors: Mapping[str, str]
    light_colors: Mapping[str, str]
    dark_colors: Mapping[str, str]
    spinner: Spinner
    branding: Branding
    tool_prefix: str
    tool_emojis: Mapping[str, str]
    art: Mapping[str, str]
    source: Path | None = None
    warnings: tuple[str, ...] = ()

    def color(self, key: str, *, light: bool = False) -> str:
        """A colour for a light or a dark terminal: the overlay's, else the skin's; changed only where it could not be read.

        Raises:
            KeyError: no surface knows this key.
        """
        overlay = self.light_colors if light else self.dark_colors
        color = overlay.get(key) or self.colors[key]
        if key not in ON_TERMINAL:
            return color
        return readable(key, color, LIGHT_BACKGROUND if light else DARK_BACKGROUND)

    def emoji(self, tool: str) -> str:
        """The emoji of a tool; empty when the skin wants none."""
        return self.tool_emojis.get(tool, TOOL_EMOJIS.get(tool, "⚙"))


@attrs.frozen(kw_only=True)
class SkinEntry:
    """One line of the list.

    Attributes:
        name: what `use` takes.
        description: one line.
        source: its file, None for a built-in.
        replaces: a user's file that stands in for a built-in of the same name.
    """

    name: str
    description: str
    source: Path | None = None
    replaces: bool = False


class _Reader:
    """Takes values out of untrusted content and remembers what was wrong."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.warnings: list[str] = []

    def warn(self, key: str, reason: str) -> None:
        """Keep one warning that names the key."""
        self.warnings.append(f"{self.what}: {clean(key, 60)} {reason}")

    def section(self, content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """A map; anything else is left out with a warning."""
        value = content.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.warn(key, "must hold keys and values; left out")
            return {}
        return value

    def colors(self, content: Mapping[str, Any], key: str) -> dict[str, str]:
        """The good colours of a section."""
        found = {}
        for name, value in self.section(content, key).items():
            color = hex_color(value)
            if value is None:
                continue
            if color is None:
                self.warn(f"{key}.{name}", f"is {clean(value, 30)!r}, not #rrggbb; the default's is used")
            else:
                found[clean(name, 60)] = color
        return found

    def text(self, content: Mapping[str, Any], key: str, default: str, limit: int = 120) -> str:
        """One line of text; an empty one counts, null does not. Blanks at both ends stay: labels are padded on purpose."""
        value = content.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.warn(key, "must be text; the default's is used")
            return default
        return _pad(value, clean(value, limit))

    def texts(self, content: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of text; an empty one falls back (C169)."""
        value = content.get(key)
        if value is None:
            return default
        if not isinstance(value, list):
            self.warn(key, "must be a list of text; the default's is used")
            return default
        return (
            tuple(filter(None, (clean(item, 60) for item in value[:64] if isinstance(item, str)))) or default
        )

    def wings(self, content: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Pairs; items that are none are skipped."""
        value = content.get("wings")
        if value is None:
            return ()
        if not isinstance(value, list):
            self.warn("spinner.wings", "must be a list of pairs; left out")
            return ()
        pairs = [item for item in value[:64] if isinstance(item, list) and len(item) == 2]
        if len(pairs) < len(value[:64]):
            self.warn("spinner.wings", "holds items that are no pairs; skipped")
        return tuple((clean(left, 20), clean(right, 20)) for left, right in pairs)


def _pad(raw: str, cleaned: str) -> str:
    left = " " if raw[:1] == " " else ""
    right = " " if raw[-1:] == " " else ""
    return f"{left}{cleaned}{right}" if cleaned else ""


def parse_skin(content: Mapping[str, Any], name: str, source: Path | None = None) -> Skin:
    """Build a skin from the content of its file.

    Args:
        content: the file's content, ordinary data.
        name: how it is called.
        source: the file, None for a built-in.
    """
    reader = _Reader(source.name if source else name)
    base: Mapping[str, Any] = BUILT_IN[DEFAULT_SKIN]
    own = reader.colors(content, "colors")
    spinner, branding = reader.section(content, "spinner"), reader.section(content, "branding")
    stated = content.get("name")
    if source is not None and stated != name:
        reader.warn("name", f"is {clean(stated, 40)!r}; the file name {name!r} counts")
    faces: Mapping[str, Any] = base["spinner"]
    words: Mapping[str, str] = base["branding"]
    return Skin(
        name=name,
        description=clean(content.get("description"), 120),
        colors=_complete(base["colors"], own),
        light_colors=reader.colors(content, "light_colors") or _light_default(own),
        dark_colors=reader.colors(content, "dark_colors"),
        spinner=Spinner(
            waiting_faces=reader.texts(spinner, "waiting_faces", tuple(faces["waiting_faces"])),
            thinking_faces=reader.texts(spinner, "thinking_faces", tuple(faces["thinking_faces"])),
            thinking_verbs=reader.texts(spinner, "thinking_verbs", tuple(faces["thinking_verbs"])),
            wings=reader.wings(spinner),
        ),
        branding=Branding(**{key: reader.text(branding, key, default) for key, default in words.items()}),
        tool_prefix=reader.text(content, "tool_prefix", base["tool_prefix"], 8),
        tool_emojis=_emojis(reader, content),
        art={key: _art(reader, content, key) for key in _ART_KEYS},
        source=source,
        warnings=tuple(reader.warnings),
    )


def _light_default(own: Mapping[str, str]) -> Mapping[str, str]:
    """A skin without colours of its own looks like the default, on light terminals too."""
    return {} if own else dict(BUILT_IN[DEFAULT_SKIN]["light_colors"])


def _complete(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Every key: the skin's own, else its stand-in where the skin has that one, else the default's."""
    merged = {**base, **own}
    for key, stand_in in FALLBACKS.items():
        if key not in own and (key not in base or stand_in in own):
            merged[key] = merged[stand_in]
    return {**{key: merged[key] for key in COLOR_KEYS}, **merged}


def _emojis(reader: _Reader, content: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for tool, value in reader.section(content, "tool_emojis").items():
        if value is None:
            continue
        if isinstance(value, str):
            found[clean(tool, 60)] = clean(value, 8)
        else:
            reader.warn(f"tool_emojis.{tool}", "must be text; the default's is used")
    return found


def _art(reader: _Reader, content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        reader.warn(key, "must be text; left out")
        return ""
    return clean_art(value)


def clean_art(text: str) -> str:
    """Art of several lines: harmless like any text, but blanks stay where they are."""
    lines = text[:8000].replace("\r\n", "\n").split("\n")[:40]
    return "\n".join("".join(ch if ch.isprintable() else " " for ch in line)[:160] for line in lines).rstrip()


def skins_folder(home: Path) -> Path:
    """Where the skins of a home lie."""
    return home / "skins"


def skin_path(home: Path, name: str) -> Path:
    """The file of a user's skin; the name must have passed `SKIN_NAME`."""
    return skins_folder(home) / f"{name}.yaml"


def _read_file(path: Path) -> Mapping[str, Any] | str:
    """The content of a skin file, or why it does not count. Raises `RecordMissing` when there is none."""
    from nedura._yaml import parse_yaml

    try:
        content = parse_yaml(read_bytes(path, MAX_FILE), path.name)
    except RecordMissing:
        raise
    except (ConfigError, StoreError) as error:
        return error.message
    if not isinstance(content, Mapping):
        return f"{path.name} must hold keys and values."
    found: Mapping[str, Any] = plain(content)
    return found if isinstance(found.get("name"), str) else f"{path.name} has no name."


def find_skin(home: Path, name: str) -> Skin:
    """The skin of a name itself: the user's file, else the built-in.

    Raises:
        ConfigError: there is none, or its file cannot be used.
    """
    if not isinstance(name, str) or not SKIN_NAME.fullmatch(name):
        raise ConfigError(f"{clean(name, 60)!r} is no skin name")
    try:
        content = _read_file(skin_path(home, name))
    except RecordMissing:
        if name in BUILT_IN:
            return parse_skin(BUILT_IN[name], name)
        raise ConfigError(f"there is no skin {name!r}") from None
    if isinstance(content, str):
        raise ConfigError(content)
    return parse_skin(content, name, skin_path(home, name))


def load_skin(home: Path, name: str) -> Skin:
    """`find_skin`, else the built-in of that name, else the default, with a warning. Never raises."""
    try:
        return find_skin(home, name)
    except ConfigError as error:
        known = isinstance(name, str) and name in BUILT_IN
        return _fall_back(name if known else DEFAULT_SKIN, error.message)


def _fall_back(name: str, reason: str) -> Skin:
    skin = parse_skin(BUILT_IN[name], name)
    return attrs.evolve(skin, warnings=(f"{reason.rstrip('.')}; the skin {name} is used", *skin.warnings))


def active_name(home: Path) -> str:
    """What `display.skin` of a home says; the default when it says nothing usable."""
    from nedura.config import read_config

    try:
        name = read_config(home).get("display.skin")
    except ConfigError:
        return DEFAULT_SKIN
    return name.strip() if isinstance(name, str) and name.strip() else DEFAULT_SKIN


def load_active(home: Path) -> Skin:
    """The skin that a home has chosen. Never raises."""
    return load_skin(home, active_name(home))


def list_skins(home: Path) -> tuple[SkinEntry, ...]:
    """The built-ins, then the user's own by name. Files that cannot be used are left out."""
    own: dict[str, SkinEntry] = {}
    for path in _files(home):
        try:
            content = _read_file(path)
        except RecordMissing:
            continue
        if isinstance(content, Mapping):
            own[path.stem] = SkinEntry(
                name=path.stem,
                description=clean(content.get("description"), 120),
                source=path,
                replaces=path.stem in BUILT_IN,
            )
    built_in = [
        own.get(name, SkinEntry(name=name, description=str(skin["description"])))
        for name, skin in BUILT_IN.items()
    ]
    return (*built_in, *(entry for name, entry in own.items() if name not in BUILT_IN))


def broken_skins(home: Path) -> tuple[tuple[str, str], ...]:
    """Names of skin files that cannot be used, each with the reason: `list_skins` leaves them out."""
    broken = []
    for path in _files(home):
        try:
            find_skin(home, path.stem)
        except ConfigError as error:
            broken.append((path.stem, error.message))
    return tuple(broken)


def _files(home: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(skins_folder(home)))
    except OSError:
        return []
    return [
        skins_folder(home) / name
        for name in names
        if name.endswith(".yaml") and SKIN_NAME.fullmatch(name[:-5])
    ]
