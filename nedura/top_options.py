"""The options before the subcommand, as data: the parser is built from it, and the profile is found with it before any parser exists."""

from __future__ import annotations

__all__ = ["TOP_OPTIONS", "VALUE_FLAGS"]

TOP_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, object]], ...] = (
    (
        ("-V", "--version"),
        {"action": "store_true", "help": "print the version (-v: install, generation, launcher)"},
    ),
    (("-v", "--verbose"), {"action": "count", "default": 0, "help": "say more"}),
    (("-p", "--profile"), {"metavar": "NAME", "help": "profile to use (in any position)"}),
    (("-m", "--model"), {"metavar": "ID", "help": "model for this session"}),
    (("--provider",), {"metavar": "NAME", "help": "provider for this session"}),
    (("--reasoning",), {"metavar": "LEVEL", "help": "reasoning effort for this session"}),
    (("-z", "--oneshot"), {"metavar": "TEXT", "help": "send one message, print the answer, exit"}),
    (
        ("-c", "--continue"),
        {"dest": "resume", "nargs": "?", "const": "", "metavar": "SESSION", "help": "continue a session"},
    ),
    (
        ("--plain",),
        {"action": "store_true", "help": "append-only output for screen readers (or ACCESSIBLE=1)"},
    ),
    (("--debug",), {"action": "store_true", "help": "show tracebacks"}),
)
"""Flags and the arguments of `add_argument`."""

VALUE_FLAGS: frozenset[str] = frozenset(
    flag for flags, how in TOP_OPTIONS if how.get("action") is None for flag in flags
)
"""Flags that take the next token as their value."""
