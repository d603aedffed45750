"""Completion of slash commands, profiles, skins and models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from nedura_cli.shell.slash import COMMANDS, find

__all__ = ["SlashCompleter"]

Names = Callable[[], Sequence[tuple[str, str]]]
"""Names and what to say about each."""


class SlashCompleter(Completer):
    """Completes a line that begins with a slash; a message is never completed.

    Args:
        sources: what completes which argument.
    """

    def __init__(self, sources: Mapping[str, Names]) -> None:
        self._sources: dict[str, Names] = {
            **sources,
            "commands": lambda: [(one.name, one.about) for one in COMMANDS],
        }

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may stand at the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        head, blank, typed = text.rpartition(" ")
        if not blank:
            for one in COMMANDS:
                if one.name.startswith(text[1:].lower()):
                    yield Completion(f"/{one.name}", -len(text), display_meta=one.about)
            return
        command = find(head.split()[0][1:].lower()) if head.split() else None
        if command is None:
            return
        for flag in command.flags:
            if typed and flag.startswith(typed) and flag not in head.split():
                yield Completion(flag, -len(typed))
        if len(head.split()) == 1 and command.completes:
            source = self._sources.get(command.completes)
            for name, about in source() if source is not None else ():
                if name.lower().startswith(typed.lower()):
                    yield Completion(name, -len(typed), display_meta=about)
