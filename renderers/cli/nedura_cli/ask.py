"""Questions to the person at the terminal. Nobody there, or no answer, means the default."""

from __future__ import annotations

import sys

from nedura_cli.output import Output

__all__ = ["ask_line", "ask_yes", "can_ask"]


def can_ask(output: Output, *, assume: bool = False) -> bool:
    """Whether a question would reach a person."""
    return not assume and not output.as_json and sys.stdin is not None and sys.stdin.isatty()


def ask_line(output: Output, question: str) -> str:
    """One line of answer; the empty string when input has ended."""
    end = question[len(question.rstrip()) :]  # the blank before the answer
    output.stdout.write(output.fit(question.rstrip(), output.stdout) + end)
    output.stdout.flush()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        output.line()
    return line.strip()


def ask_yes(output: Output, question: str, *, assume: bool = False) -> bool:
    """A yes-or-no question whose default is yes; an end of input counts as yes (facts/signin.md 6)."""
    if not can_ask(output, assume=assume):
        return True
    return ask_line(output, f"{question} [Y/n] ").lower() not in ("n", "no")
