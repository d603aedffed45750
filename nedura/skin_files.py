"""Making and changing a user's skin files: a commented template, one colour at a time, a built-in forked before it is changed."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from nedura.config import edit_config, set_value
from nedura.errors import ConfigError, RecordMissing, UsageError
from nedura.locks import locked
from nedura.records import make_folder, read_bytes, write_bytes
from nedura.skin_colors import hex_color
from nedura.skin_data import BUILT_IN, COLOR_KEYS
from nedura.skins import (
    DEFAULT_SKIN,
    MAX_FILE,
    SKIN_NAME,
    Skin,
    find_skin,
    list_skins,
    parse_skin,
    skin_path,
    skins_folder,
)
from nedura.text import clean

__all__ = ["check_skin_name", "new_skin", "save_choice", "set_color", "template", "usable_skin"]

_PALETTES: Final = ("colors", "light_colors", "dark_colors")


def check_skin_name(text: str) -> str:
    """A skin name that may become a file.

    Raises:
        UsageError: it may not.
    """
    name = text.strip()
    if not SKIN_NAME.fullmatch(name):
        raise UsageError(
            f"{clean(text, 60)!r} is no skin name.",
            advice="Use letters, digits, _ and -, at most 64, no path.",
        )
    return name


def usable_skin(home: Path, name: str) -> Skin:
    """The skin of a name itself.

    Raises:
        UsageError: there is no such skin, or its file cannot be used; says why.
    """
    check_skin_name(name)
    try:
        return find_skin(home, name)
    except ConfigError as error:
        reason = error.message.rstrip(".")
        text = f"The skin {name} cannot be used: {reason}" if name in reason.split(" ")[0] else reason
        raise UsageError(f"{text[:1].upper()}{text[1:]}.", advice=_there_are(home)) from error


def _there_are(home: Path) -> str:
    return f"There are: {', '.join(entry.name for entry in list_skins(home))}."


def save_choice(home: Path, name: str) -> None:
    """Make a skin the home's own, if it can be loaded as itself.

    Raises:
        UsageError: there is no such skin, or its file cannot be used.
        ConfigError: the choice cannot be saved.
    """
    usable_skin(home, name)
    edit_config(home, lambda content: set_value(content, "display.skin", name))


def _quoted(text: object) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(values: object) -> str:
    return "[" + ", ".join(_quoted(value) for value in values) + "]"  # type: ignore[attr-defined]


def template(name: str, base: str = DEFAULT_SKIN) -> str:
    """A complete skin file with a comment on every part.

    Args:
        name: the new skin's name.
        base: built-in whose look it starts with.
    """
    skin = parse_skin(BUILT_IN[base], base)
    words = skin.branding
    lines = [
        f"# Skin {name}. Use it with: nedura skin use {name}",
        "# Leave out what you do not want to change: a missing key comes from the default skin.",
        f"name: {name}",
        f"description: {_quoted(f'My own, begun from {base}')}",
        "",
        "# Every colour is \"#rrggbb\" in quotes (without quotes the # starts a comment).",
        "colors:",
        *(f'  {key}: "{skin.colors[key]}"' for key in COLOR_KEYS),
        "",
        "# Other colours for light and for dark terminals. Empty: the colours above, made readable where they are not.",
        "light_colors: {}",
        "dark_colors: {}",
        "",
        "spinner:",
        "  # Shown one after the other while it waits for the model, and while it thinks.",
        f"  waiting_faces: {_list(skin.spinner.waiting_faces)}",
        f"  thinking_faces: {_list(skin.spinner.thinking_faces)}",
        f"  thinking_verbs: {_list(skin.spinner.thinking_verbs)}",
        "  # Pairs around the verb, for example [[\"<\", \">\"]].",
        "  wings: [" + ", ".join(_list(pair) for pair in skin.spinner.wings) + "]",
        "",
        "branding:",
        f"  agent_name: {_quoted(words.agent_name)}",
        f"  welcome: {_quoted(words.welcome)}",
        f"  goodbye: {_quoted(words.goodbye)}",
        "  # Title of the answer's box.",
        f"  response_label: {_quoted(words.response_label)}",
        "  # Before what you type; one blank is added.",
        f"  prompt_symbol: {_quoted(words.prompt_symbol)}",
        f"  help_header: {_quoted(words.help_header)}",
        "",
        "# Before each line about a tool.",
        f"tool_prefix: {_quoted(skin.tool_prefix)}",
        "# Emoji of a tool; \"\" means none.",
        "tool_emojis: {}",
        "",
        "# Art of the banner, several lines: [bold], [dim], [italic], [#rrggbb] and [/] style it, everything else is text.",
        'banner_logo: ""',
        'banner_hero: ""',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def new_skin(home: Path, text: str, base: str = DEFAULT_SKIN) -> Path:
    """Write a commented template as a new skin.

    Raises:
        UsageError: the name is impossible or taken, or there is no such base.
        StoreError: it cannot be written.
    """
    name = check_skin_name(text)
    if base not in BUILT_IN:
        raise UsageError(
            f"{clean(base, 60)!r} is no built-in skin.", advice=f"Use one of {', '.join(BUILT_IN)}."
        )
    path = skin_path(home, name)
    make_folder(skins_folder(home))
    with locked(skins_folder(home) / ".lock", what="the skins"):
        if path.exists() or path.is_symlink():
            raise UsageError(f"There is a skin file {path.name} already.", advice="Choose another name.")
        write_bytes(path, template(name, base).encode(), 0o644)
    return path


def set_color(home: Path, name: str, key: str, value: str) -> tuple[str, Path]:
    """Change one colour of a skin; a built-in is first forked to `<name>-custom`, which becomes the home's skin.

    Args:
        home: whose skins.
        name: the skin.
        key: colour key.
        value: `#rrggbb`.

    Returns:
        The skin that was changed, and its file.

    Raises:
        UsageError: no such skin or key.
        ConfigError: the value is no colour (exit 1), or the file cannot be read.
    """
    color = hex_color(value)
    if color is None:
        raise ConfigError(
            f"{clean(value, 40)!r} is no colour.", advice='Use "#rrggbb", six digits of 0-9 and a-f.'
        )
    if key not in COLOR_KEYS:
        raise UsageError(f"{clean(key, 60)!r} is no colour of a skin.", advice="See: nedura skin show")
    target, path = _own_file(home, check_skin_name(name))
    _edit(path, lambda content: _put(content, key, color))
    return target, path


def _own_file(home: Path, name: str) -> tuple[str, Path]:
    path = skin_path(home, name)
    if path.exists():
        return name, path
    if name not in BUILT_IN:
        raise UsageError(f"There is no skin {name!r}.", advice=_there_are(home))
    custom = f"{name}-custom"
    if not skin_path(home, custom).exists():
        new_skin(home, custom, name)
        overlays = {part: BUILT_IN[name].get(part) for part in _PALETTES[1:]}
        _edit(skin_path(home, custom), lambda content: _copy_overlays(content, overlays))
    save_choice(home, custom)
    return custom, skin_path(home, custom)


def _copy_overlays(content: MutableMapping[str, Any], overlays: Mapping[str, Any]) -> None:
    for part, colors in overlays.items():
        if colors:
            content[part] = dict(colors)


def _put(content: MutableMapping[str, Any], key: str, color: str) -> None:
    """Set it, and take it out of the overlays: what was just chosen is what one sees."""
    set_value(content, f"colors.{key}", color)
    for part in _PALETTES[1:]:
        section = content.get(part)
        if isinstance(section, MutableMapping):
            section.pop(key, None)


def _edit(path: Path, change: Any) -> None:
    from nedura._yaml import dump_yaml, parse_yaml

    with locked(path.parent / ".lock", what="the skins"):
        try:
            before = read_bytes(path, MAX_FILE)
        except RecordMissing as error:
            raise ConfigError(f"{path.name} is gone.") from error
        content = parse_yaml(before, path.name)
        if not isinstance(content, MutableMapping):
            raise ConfigError(f"{path.name} must hold keys and values.")
        change(content)
        write_bytes(path, dump_yaml(content, before), 0o644)
