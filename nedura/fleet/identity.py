"""What a process is, from its argument list. Pure: no process table, no environment.

The entry must stand at program position: argv[0] itself, or the script or `-m` operand of the Python interpreter at argv[0].
Whatever an editor, a wrapper, a flag's value or a quoted text says further right is data. Flag sets are read off the parser in
`nedura.commands`, so they cannot drift from it (decision 24, facts/runtime.md 1.5).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from nedura.fleet.argv_walk import Walk, grammars, is_flag, profile_after, walk_options
from nedura.fleet.entrypoint import Entry, base_name, find_entry, is_interpreter, module_files, windows_style
from nedura.product import NEDURA, Product
from nedura.text import clean, redact

__all__ = [
    "Classification",
    "Role",
    "classify",
    "classify_text",
    "display_command",
    "masked_argv",
    "needle_for",
    "split_text",
]

Role = Literal["gateway", "gateway_restart", "serve", "dashboard", "command", "none", "unknown"]
DISPLAY_WIDTH: Final = 120
"""Characters of a command line that people are shown. Never an input of a decision (#78089)."""

_CUT_FOLDER: Final = re.compile(r"cpython-\d[\w.]*")
_SHORT_LIVED: Final = frozenset({"-h", "--help", "-V", "--version"})
_BACKENDS: Final[Mapping[str, Role]] = {"serve": "serve", "dashboard": "dashboard"}


@attrs.frozen(kw_only=True)
class Classification:
    """What an argument list is taken for, and why.

    Attributes:
        gateway_run: whether it runs the chat gateway; None when that cannot be told.
        may_host: whether it can host the gateway's runtime: `run`, or `restart` without a service manager. Only for our own records.
        profile: the profile it names, None when only the environment or a record can tell.
        subcommand: top-level subcommand of a nedura command, None when there is none or it cannot be determined.
        verb: verb of `gateway`, empty otherwise.
        role: the above in one word.
        entry: how it was recognised: `command`, `module`, `script`, `gateway`, `bootstrap`; empty when it is not ours.
        exact: False when it was read from joined text, which loses the borders of arguments.
        why: one sentence for operators.
    """

    gateway_run: bool | None
    may_host: bool = False
    profile: str | None = None
    subcommand: str | None = None
    verb: str = ""
    role: Role = "none"
    entry: str = ""
    exact: bool = True
    why: str = ""


def classify(
    argv: Sequence[str], *, product: Product = NEDURA, platform: str = sys.platform
) -> Classification:
    """Say what an argument list is: a gateway, a backend, another nedura command, or none of ours.

    Args:
        argv: the real, full argument list.
        product: names to go by.
        platform: `sys.platform` of the system that the process runs on.
    """
    if not argv or not argv[0]:
        return Classification(
            gateway_run=False, why="It has no command line (a zombie, a kernel thread or renamed)."
        )
    if _is_cut(argv):
        return Classification(
            gateway_run=None, role="unknown", why="The command line is cut off; a part is no evidence."
        )
    entry = find_entry(argv, product, platform)
    if entry is None:
        return Classification(gateway_run=False, why=_why_not(argv, platform))
    tokens = argv
    if windows_style(argv[0], platform):
        tokens = [token.lower() if not is_flag(token) else token for token in argv]
    return _dedicated(tokens, entry) if entry.gateway else _command(tokens, entry)


def _is_cut(argv: Sequence[str]) -> bool:
    """Whether a command line was shortened for display, or ends inside the path of its interpreter."""
    if len(argv) != 1:
        return False  # the kernel cuts nothing: among separate arguments it is text that somebody typed
    base = re.split(r"[/\\]", argv[0])[-1]
    return argv[0].startswith("…") or argv[0].endswith("…") or _CUT_FOLDER.fullmatch(base) is not None


def _why_not(argv: Sequence[str], platform: str) -> str:
    base = clean(base_name(argv[0], platform), 60)
    if is_interpreter(base):
        return (
            f"{base} runs a script, module or inline source that is not ours; later arguments are its data."
        )
    return (
        f"The program is {base or 'unnamed'}; what its arguments say is data, or runs in a child of its own."
    )


def _dedicated(tokens: Sequence[str], entry: Entry) -> Classification:
    _, gateway = grammars()
    walk = walk_options(tokens, entry.start, gateway)
    profile = walk.profile or profile_after(tokens, walk.index, gateway)
    if not _SHORT_LIVED.isdisjoint(walk.flags):
        return Classification(
            gateway_run=False, profile=profile, role="command", entry="gateway", why="It only prints text."
        )
    return Classification(
        gateway_run=True,
        may_host=True,
        profile=profile,
        verb="run",
        role="gateway",
        entry="gateway",
        why="It is an entry point that does nothing else than run the gateway.",
    )


def _command(tokens: Sequence[str], entry: Entry) -> Classification:
    top, gateway = grammars()
    walk = walk_options(tokens, entry.start, top)
    short_lived = not _SHORT_LIVED.isdisjoint(walk.flags)
    if walk.index >= len(tokens):
        return Classification(
            gateway_run=False,
            profile=walk.profile,
            role="command",
            entry=entry.how,
            why="It is the command without a subcommand.",
        )
    subcommand = tokens[walk.index].lower()
    rest = walk.index + 1
    if subcommand != "gateway":
        return _other(tokens, entry, walk, subcommand, short_lived=short_lived)
    inner = walk_options(tokens, rest, gateway)
    verb = tokens[inner.index].lower() if inner.index < len(tokens) else "run"
    behind = walk_options(tokens, inner.index + 1, gateway)
    profile = walk.profile or inner.profile or profile_after(tokens, inner.index + 1, gateway)
    short_lived = short_lived or not _SHORT_LIVED.isdisjoint([*inner.flags, *behind.flags])
    running = verb == "run" and not short_lived
    hosts = verb in ("run", "restart") and not short_lived
    return Classification(
        gateway_run=running,
        may_host=hosts,
        profile=profile,
        subcommand="gateway",
        verb=verb,
        role="gateway" if running else "gateway_restart" if hosts else "command",
        entry=entry.how,
        why=f"The {entry.how} entry runs `gateway {clean(verb, 40)}`{', which only prints text' if short_lived else ''}.",
    )


def _other(
    tokens: Sequence[str], entry: Entry, walk: Walk, subcommand: str, *, short_lived: bool
) -> Classification:
    top, _ = grammars()
    rest = tokens[walk.index + 1 :]
    for_people = short_lived or any(flag in rest for flag in ("-h", "--help", "--status", "--stop"))
    role: Role = "command" if for_people else _BACKENDS.get(subcommand, "command")
    return Classification(
        gateway_run=False,
        profile=walk.profile or profile_after(tokens, walk.index + 1, top),
        subcommand=subcommand,
        role=role,
        entry=entry.how,
        why=f"The {entry.how} entry runs the subcommand {clean(subcommand, 40)}.",
    )


def split_text(text: str) -> list[str]:
    """Split a joined command line: quotes group, back-slashes stay, an unbalanced quote splits on blanks."""
    tokens = re.findall(r'(?:[^\s"\']|"[^"]*"|\'[^\']*\')+', text)
    if text.count('"') % 2 or text.count("'") % 2:
        return text.split()
    return [
        token[1:-1] if len(token) > 1 and token[0] == token[-1] and token[0] in "\"'" else token
        for token in tokens
    ]


def classify_text(
    text: str, *, product: Product = NEDURA, platform: str = sys.platform, width: int | None = None
) -> Classification:
    """`classify` for a system that gives joined text only. Borders of arguments are guesses here, so it is not exact.

    Args:
        text: the command line.
        product: as in `classify`.
        platform: as in `classify`.
        width: length in characters at which the source cuts; a text that long is not evidence.
    """
    if width is not None and len(text) >= width:
        return Classification(
            gateway_run=None, role="unknown", exact=False, why="The command line may be cut off."
        )
    if text.strip().startswith("…") or text.strip().endswith("…"):
        return Classification(
            gateway_run=None,
            role="unknown",
            exact=False,
            why="The command line is cut off; a part is no evidence.",
        )
    return attrs.evolve(classify(split_text(text), product=product, platform=platform), exact=False)


def needle_for(product: Product = NEDURA) -> re.Pattern[bytes]:
    """A pattern that every command line with an entry of ours contains. For skipping the others quickly, never for identity."""
    names = {product.command, *product.main_modules, *product.gateway_modules, *product.gateway_commands}
    names |= {path.rpartition("/")[2] for path in product.gateway_scripts}
    names |= set(module_files(product.main_modules)) | set(module_files(product.gateway_modules))
    roots = sorted({name for name in names if not any(other != name and other in name for other in names)})
    return re.compile(b"|".join(re.escape(os.fsencode(name)) for name in roots), re.IGNORECASE)


_SECRET_FLAG: Final = re.compile(
    r"(?i)--(?:[a-z0-9-]*-)?(?:token|api-key|password|secret|authorization|access-key|private-key|session-key)"
)


def masked_argv(argv: Sequence[str]) -> list[str]:
    """An argument list for files and sockets: values of secret-named flags and what looks like a credential masked."""
    masked, hide = [], False
    for token in argv:
        masked.append("[redacted]" if hide else redact(token))
        hide = _SECRET_FLAG.fullmatch(token) is not None
    return masked


def display_command(argv: Sequence[str]) -> str:
    """A command line for people: secret values masked, then cut to 120 characters."""
    return clean(" ".join(masked_argv(argv)), DISPLAY_WIDTH)
