"""The five built-in skins as data (decision 27): palettes of facts/runtime.md 7.3, words and faces of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["BUILT_IN", "COLOR_KEYS", "FALLBACKS", "TOOL_EMOJIS"]


def _palette(text: str) -> dict[str, str]:
    return dict(line.split() for line in text.strip().splitlines())


_DEFAULT: Final = _palette(
    """
    banner_border #cd7f32
    banner_title #ffd700
    banner_accent #ffbf00
    banner_dim #b8860b
    banner_text #fff8dc
    ui_accent #ffbf00
    ui_label #daa520
    ui_ok #4caf50
    ui_error #ef5350
    ui_warn #ffa726
    prompt #fff8dc
    input_rule #cd7f32
    response_border #ffd700
    status_bar_bg #1a1a2e
    status_bar_text #c0c0c0
    status_bar_strong #ffd700
    status_bar_dim #8a7a4a
    status_bar_good #8fbc8f
    status_bar_warn #ffd700
    status_bar_bad #ff8c00
    status_bar_critical #ff6b6b
    session_label #daa520
    session_border #8b8682
    completion_menu_bg #1a1a2e
    completion_menu_current_bg #333355
    selection_bg #3a3a55
    shell_dollar #4dabf7
    voice_status_bg #1a1a2e
    """
)

_ARES: Final = _palette(
    """
    banner_border #a93333
    banner_title #c7a96b
    banner_accent #dd4a3a
    banner_dim #905151
    banner_text #f1e6cf
    ui_accent #dd4a3a
    ui_label #c7a96b
    ui_ok #4caf50
    ui_error #ef5350
    ui_warn #ffa726
    prompt #f1e6cf
    input_rule #a93333
    response_border #c7a96b
    status_bar_bg #2a1212
    status_bar_text #f1e6cf
    status_bar_strong #c7a96b
    status_bar_dim #756054
    status_bar_good #7bc96f
    status_bar_warn #c7a96b
    status_bar_bad #dd4a3a
    status_bar_critical #ef5350
    session_label #c7a96b
    session_border #6e584b
    completion_menu_bg #2a1212
    completion_menu_current_bg #5c221d
    selection_bg #692620
    shell_dollar #dd4a3a
    voice_status_bg #2a1212
    """
)

_MONO: Final = _palette(
    """
    banner_border #5e5e5e
    banner_title #e6edf3
    banner_accent #aaaaaa
    banner_dim #606060
    banner_text #c9d1d9
    ui_accent #aaaaaa
    ui_label #888888
    ui_ok #888888
    ui_error #cccccc
    ui_warn #999999
    prompt #c9d1d9
    input_rule #606060
    response_border #aaaaaa
    status_bar_bg #1f1f1f
    status_bar_text #c9d1d9
    status_bar_strong #e6edf3
    status_bar_dim #777777
    status_bar_good #b5b5b5
    status_bar_warn #aaaaaa
    status_bar_bad #d0d0d0
    status_bar_critical #f0f0f0
    session_label #888888
    session_border #5e5e5e
    completion_menu_bg #1f1f1f
    completion_menu_current_bg #464646
    selection_bg #505050
    shell_dollar #aaaaaa
    voice_status_bg #1f1f1f
    """
)

_SLATE: Final = _palette(
    """
    banner_border #4169e1
    banner_title #7eb8f6
    banner_accent #8ea8ff
    banner_dim #545e6b
    banner_text #c9d1d9
    ui_accent #7eb8f6
    ui_label #8ea8ff
    ui_ok #63d0a6
    ui_error #f7a072
    ui_warn #e6a855
    prompt #c9d1d9
    input_rule #4169e1
    response_border #7eb8f6
    status_bar_bg #151c2f
    status_bar_text #c9d1d9
    status_bar_strong #7eb8f6
    status_bar_dim #5d6672
    status_bar_good #63d0a6
    status_bar_warn #e6a855
    status_bar_bad #f7a072
    status_bar_critical #ff7a7a
    session_label #7eb8f6
    session_border #545e6b
    completion_menu_bg #151c2f
    completion_menu_current_bg #324867
    selection_bg #3a5375
    shell_dollar #7eb8f6
    voice_status_bg #151c2f
    """
)

_DAYLIGHT: Final = _palette(
    """
    banner_border #2563eb
    banner_title #0f172a
    banner_accent #1d4ed8
    banner_dim #475569
    banner_text #111827
    ui_accent #2563eb
    ui_label #0f766e
    ui_ok #15803d
    ui_error #b91c1c
    ui_warn #b45309
    prompt #111827
    input_rule #6e94be
    response_border #2563eb
    status_bar_bg #e5edf8
    status_bar_text #111827
    status_bar_strong #2563eb
    status_bar_dim #838890
    status_bar_good #15803d
    status_bar_warn #b45309
    status_bar_bad #b45309
    status_bar_critical #b91c1c
    session_label #1d4ed8
    session_border #64748b
    completion_menu_bg #f8fafc
    completion_menu_current_bg #dbeafe
    completion_menu_meta_bg #eef2ff
    completion_menu_meta_current_bg #bfdbfe
    selection_bg #d3e0fb
    shell_dollar #2563eb
    voice_status_bg #e5edf8
    """
)

_DEFAULT_LIGHT: Final = _palette(
    """
    banner_title #c8961e
    banner_accent #d89b04
    banner_dim #b8860b
    banner_text #5c4718
    ui_accent #d89b04
    ui_label #a97e10
    ui_ok #2e7d32
    ui_error #c62828
    ui_warn #d97706
    prompt #5c4718
    response_border #c8961e
    session_label #a97e10
    status_bar_text #6f6f6f
    status_bar_strong #c8961e
    status_bar_dim #9a8a5a
    status_bar_good #2e7d32
    status_bar_warn #c8961e
    status_bar_bad #c2410c
    status_bar_critical #b91c1c
    shell_dollar #1e6fc0
    completion_menu_bg #f5f5f5
    completion_menu_current_bg #e0d1bf
    selection_bg #d4e4f7
    status_bar_bg #f5f5f5
    voice_status_bg #f5f5f5
    """
)

COLOR_KEYS: Final = (*_DEFAULT, "completion_menu_meta_bg", "completion_menu_meta_current_bg")
"""Every colour a surface may ask for."""

FALLBACKS: Final[Mapping[str, str]] = {
    "completion_menu_meta_bg": "completion_menu_bg",
    "completion_menu_meta_current_bg": "completion_menu_current_bg",
    "selection_bg": "completion_menu_current_bg",
}
"""Colour that stands in when a skin that has its own palette leaves this one out."""

TOOL_EMOJIS: Final[Mapping[str, str]] = {
    "terminal": "💻",
    "read_file": "📖",
    "write_file": "✏️",
    "search": "🔎",
    "web_search": "🌐",
    "browser": "🧭",
    "memory": "🧠",
    "image": "🎨",
    "cron": "⏰",
}
"""Emojis of tools that a skin says nothing about."""

_SPINNER: Final[Mapping[str, Any]] = {
    "waiting_faces": ["(・ω・)", "(◕‿◕)", "(˘▽˘)", "(^-^)", "(´ー`)"],
    "thinking_faces": ["(・_・)", "(°ー°)", "(¬‿¬)", "(•_•)", "(._.)"],
    "thinking_verbs": [
        "mulling it over", "joining the dots", "turning pages", "lining things up",
        "weighing options", "following threads", "sketching", "nearly there",
    ],
    "wings": [],
}  # fmt: skip

_BRANDING: Final[Mapping[str, str]] = {
    "agent_name": "Nedura",
    "welcome": "Hello. Type a message, or /help for the commands.",
    "goodbye": "Goodbye.",
    "response_label": " ⚕ Nedura ",
    "prompt_symbol": "❯",
    "help_header": "Commands",
}

BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {
        "name": "default",
        "description": "Gold and warm",
        "colors": _DEFAULT,
        "light_colors": _DEFAULT_LIGHT,
        "spinner": _SPINNER,
        "branding": _BRANDING,
        "tool_prefix": "┊",
    },
    "ares": {
        "name": "ares",
        "description": "Crimson and bronze",
        "colors": _ARES,
        "spinner": {
            "waiting_faces": ["(⚔)", "(⛨)", "(▲)", "(✦)", "(⌁)"],
            "thinking_faces": ["(⚔)", "(▲)", "(⌁)", "(<>)", "(/)"],
            "thinking_verbs": [
                "forming the line", "sharpening bronze", "reading the field", "raising the standard",
                "holding the pass", "marching on", "choosing ground", "drawing lots",
            ],
            "wings": [["⟪⚔", "⚔⟫"], ["⟪▲", "▲⟫"], ["⟪⌁", "⌁⟫"], ["⟪✦", "✦⟫"]],
        },
        "branding": {
            "agent_name": "Ares",
            "welcome": "Ready. Speak, or ask for /help.",
            "goodbye": "Until the next field.",
            "response_label": " ⚔ Ares ",
            "prompt_symbol": "⚔",
            "help_header": "Orders",
        },
        "tool_prefix": "╎",
    },
    "mono": {"name": "mono", "description": "Shades of grey", "colors": _MONO, "tool_prefix": "┊"},
    "slate": {"name": "slate", "description": "Cool blue", "colors": _SLATE, "tool_prefix": "┊"},
    "daylight": {
        "name": "daylight",
        "description": "Dark ink and blue, for light terminals",
        "colors": _DAYLIGHT,
        "tool_prefix": "│",
    },
}  # fmt: skip
"""Name -> skin, in the form of a user's file."""
