"""Instances of any event with hostile text in every field."""

from __future__ import annotations

import collections.abc
import types
import typing
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal

import attrs

__all__ = ["HOSTILE", "hostile", "is_harmless"]

HOSTILE: Final = (
    "\x1b]52;c;aGk=\x07\x1b[2J\x1b[31m\u202eevil\u200b\x9b2J\x08\x00[link=https://evil.example]x[/link][/x][bold]"
    "<b>&amp;</b>\r\ttab\x7f\u2028"
)


def _value(kind: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object, str):
        return HOSTILE
    if kind in (int, float, bool):
        return kind(1)
    if kind is Path:
        return Path("/tmp") / HOSTILE.replace("\0", "").replace("/", "")
    if kind is datetime:
        return datetime(2026, 1, 1)
    if origin is Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        return _value(next(one for one in arguments if one is not type(None)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and attrs.has(kind):
        return hostile(kind)
    return _container(kind, origin, arguments)


def _container(kind: Any, origin: Any, arguments: Any) -> Any:
    if origin in (dict, collections.abc.Mapping) or kind is dict:
        return {HOSTILE: _value(arguments[1]) if arguments else HOSTILE}
    if origin in (tuple, list, collections.abc.Sequence, frozenset, set):
        items = [_value(one) for one in arguments if one is not ...] or [HOSTILE]
        return tuple(items) if origin is tuple else list(items)
    return None


def hostile(cls: type[Any]) -> Any:
    """One instance of an attrs class; every text in it is hostile."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: _value(hints.get(field.name, str)) for field in attrs.fields(cls) if field.init}
    return cls(**fields)


def is_harmless(text: str) -> bool:
    """Whether a text, its line ends and colour codes of ours aside, holds printable characters only."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\n", "").isprintable()
