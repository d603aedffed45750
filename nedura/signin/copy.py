"""What may be said in a chat: no address, no command of ours, no word of the machinery (decision 28)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from nedura.text import clean

__all__ = ["BANNED", "chat_safe", "shown_email", "shown_model"]

BANNED: Final = re.compile(r"(?i)guest|anonymous|claim")
_LINKISH: Final = re.compile(
    r"(?i)[a-z][a-z0-9+.-]*://|(?:^|[^A-Za-z0-9:])//\w|\b(?:mailto|tel|data|file):\S|`|\bwww\.|\]\(|javascript:|<[a-z/!]"
)
_COMMANDS: Final = re.compile(
    r"(?i)\b(?:nedura|hermes)\s+[a-z-]|(?:^|\s)--?[a-z]|traceback|(?:error|exception)\b *[:(]"
)
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/-]{0,99}")
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"
)


def chat_safe(text: object, limit: int = 300) -> str:
    """One line that any chat may show; empty when it holds an address, a command or a banned word."""
    line = clean(text, limit)
    read = unicodedata.normalize("NFKC", line)  # as a reader sees it: full-width letters are letters
    return "" if BANNED.search(read) or _LINKISH.search(read) or _COMMANDS.search(read) else line


def shown_model(model: str) -> str:
    """A model id when it is one and nothing else, else empty."""
    return chat_safe(model) if _MODEL.fullmatch(model) else ""


def shown_email(email: str) -> str:
    """An address when it is one and nothing else, else empty."""
    return chat_safe(email, 254) if len(email) <= 254 and _EMAIL.fullmatch(email) else ""
