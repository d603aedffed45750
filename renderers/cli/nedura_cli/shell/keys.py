"""Keys of the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, completion_is_selected
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

if TYPE_CHECKING:
    from nedura_cli.shell.app import Shell

__all__ = ["make_keys"]


def make_keys(shell: Shell) -> KeyBindings:
    """All bindings of a shell beside prompt_toolkit's own line editing."""
    keys = KeyBindings()
    beside = Condition(lambda: shell.panel is not None and not shell.buffer.text)

    @keys.add("enter", filter=completion_is_selected)
    def _take(event: KeyPressEvent) -> None:
        shell.buffer.complete_state = None

    @keys.add("enter", filter=~completion_is_selected)
    def _submit(event: KeyPressEvent) -> None:
        shell.submit()

    @keys.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        shell.buffer.insert_text("\n")

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        shell.interrupt()

    @keys.add("c-d", filter=Condition(lambda: not shell.buffer.text))
    def _leave(event: KeyPressEvent) -> None:
        shell.leave()

    @keys.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @keys.add("c-l")
    def _clear(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    @keys.add("escape", filter=beside)
    def _cancel(event: KeyPressEvent) -> None:
        if shell.panel is not None:
            shell.panel.key("escape")

    for name in ("c", "r"):

        @keys.add(name, filter=beside)
        def _panel(event: KeyPressEvent, name: str = name) -> None:
            if shell.panel is not None:
                shell.panel.key(name)

    return keys
