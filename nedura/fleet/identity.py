"""What a process is, from its argument list. Pure: no process table, no environment.

The entry must stand at program position: argv[0] itself, or the script or `-m` operand of the Python interpreter at argv[0].
Whatever an editor, a wrapper, a flag's value or a quoted text says further right is data. Flag sets are read off the parser in
`nedura.commands`, so they cannot drift from it (decision 24, facts/runtime.md 1.5).
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from nedura.commands import build_parser, subparser
from nedura.homes import DEFAULT_PROFILE
from nedura.product import NEDURA, Product
from nedura.text import clean, redact

__all__ = [
    "Classification",
    "Role",
    "classify",
    "classify_text",
    "display_command",
    "needle_for",
    "split_text",
]

Role = Literal["gateway", "gateway_restart", "serve", "dashboard", "command", "none", "unknown"]
DISPLAY_WIDTH: Final = 120
"""Characters of a command line that people are shown. Never an input of a decision (#78089)."""

_INTERPRETER: Final = re.compile(r"^(?:python|pypy)w?(?:\d+(?:\.\d+)*)?[a-z]?$")
_CUT_FOLDER: Final = re.compile(r"^cpython-\d[\w.]*$")
_INTERPRETER_OPERANDS: Final = "WXQ"
_LONG_OPERANDS: Final = frozenset({"--check-hash-based-pycs", "--jit"})
_PROFILE_FLAGS: Final = ("-p", "--profile")
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


Arity = Literal["none", "one", "optional", "rest"]


@attrs.frozen
class _Grammar:
    """Options of one parser: flag -> what it swallows."""

    options: Mapping[str, Arity]

    def arity(self, flag: str) -> Arity:
        return self.options.get(flag, "none")


def _arity(action: argparse.Action) -> Arity:
    match action.nargs:
        case 0:
            return "none"
        case "?":
            return "optional"
        case None | 1:
            return "one"
        case _:
            return "rest"


def _grammar_of(parser: argparse.ArgumentParser | None) -> _Grammar:
    actions = parser._actions if parser is not None else []
    options = {flag: _arity(action) for action in actions for flag in action.option_strings}
    return _Grammar({**options, "-p": "one", "--profile": "one"})


@functools.cache
def _grammars() -> tuple[_Grammar, _Grammar]:
    """Grammars of the whole command and of its `gateway` subcommand, with the profile flag that counts in any position."""
    parser = build_parser()
    return _grammar_of(parser), _grammar_of(subparser(parser, "gateway"))


@attrs.define
class _Walk:
    """Options read so far, and where the first word that is neither a flag nor its value stands."""

    index: int
    flags: list[str] = attrs.field(factory=list)
    profile: str | None = None


def _take_value(arity: Arity, tokens: Sequence[str], index: int) -> int:
    """Index after the values that a flag at `index` - 1 swallows."""
    if arity == "one":
        return index + 1
    if arity == "optional":
        return index + 1 if index < len(tokens) and not _is_flag(tokens[index]) else index
    if arity == "rest":
        while index < len(tokens) and not _is_flag(tokens[index]):
            index += 1
    return index


def _is_flag(token: str) -> bool:
    return len(token) > 1 and token.startswith("-")


def _walk(tokens: Sequence[str], start: int, grammar: _Grammar) -> _Walk:
    """Step over options the way argparse does, up to the first positional word."""
    walk = _Walk(start)
    while walk.index < len(tokens):
        token = tokens[walk.index]
        if token == "--":
            walk.index += 1
            break
        if not _is_flag(token):
            break
        walk.index += 1
        _step(token, tokens, walk, grammar)
    return walk


def _step(token: str, tokens: Sequence[str], walk: _Walk, grammar: _Grammar) -> None:
    """Read one option token, its attached or following value included."""
    if token.startswith("--") or token in grammar.options:
        flag, mark, value = token.partition("=")
        walk.flags.append(flag)
        if mark:
            _note(walk, flag, value)
        else:
            end = _take_value(grammar.arity(flag), tokens, walk.index)
            _note(walk, flag, tokens[walk.index] if end > walk.index and end <= len(tokens) else None)
            walk.index = end
        return
    for position, letter in enumerate(token[1:], 1):
        flag = f"-{letter}"
        walk.flags.append(flag)
        if flag not in grammar.options:
            return  # an option of another version: it stands for itself
        if grammar.arity(flag) == "none":
            continue
        attached = token[position + 1 :].removeprefix("=")
        if attached:
            _note(walk, flag, attached)
        else:
            end = _take_value(grammar.arity(flag), tokens, walk.index)
            _note(walk, flag, tokens[walk.index] if end > walk.index and end <= len(tokens) else None)
            walk.index = end
        return


def _note(walk: _Walk, flag: str, value: str | None) -> None:
    if flag in _PROFILE_FLAGS and value is not None and walk.profile is None:
        walk.profile = value.strip().casefold() or None


def _profile_after(tokens: Sequence[str], start: int, grammar: _Grammar) -> str | None:
    """The profile flag behind the subcommand; `--` and `--args` end what belongs to us (facts/runtime.md 6.4)."""
    index = start
    while index < len(tokens):
        token = tokens[index]
        if token in ("--", "--args"):
            return None
        index += 1
        if not _is_flag(token):
            continue
        walk = _Walk(index)
        _step(token, tokens, walk, grammar)
        if walk.profile is not None:
            return walk.profile
        index = walk.index
    return None


# ---- where the program stands -------------------------------------------------------------------------------------------------


def _windows_style(token: str, platform: str) -> bool:
    return platform == "win32" or "\\" in token or token.lower().endswith(".exe")


def _path(token: str, platform: str) -> str:
    """A path in one spelling: quotes off, forward slashes, lower case where the system ignores case."""
    text = token.strip("\"'") if token[:1] in "\"'" else token
    return text.replace("\\", "/").lower() if _windows_style(text, platform) else text


def _base(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".exe")


def _ends_with(path: str, tail: str) -> bool:
    return path == tail or path.endswith("/" + tail)


@attrs.frozen
class _Entry:
    """How an argument list enters our code, and where its own arguments begin."""

    how: str
    start: int
    gateway: bool = False


def _find_entry(argv: Sequence[str], product: Product, platform: str) -> _Entry | None:
    program = _path(argv[0], platform)
    base = _base(program)
    if base == product.command:
        return _Entry("command", 1)
    if base in product.gateway_commands:
        return _Entry("gateway", 1, gateway=True)
    if _INTERPRETER.match(base):
        return _interpreted(argv, product, platform)
    return None


def _interpreted(argv: Sequence[str], product: Product, platform: str) -> _Entry | None:
    """Walk the interpreter's own options to its script, module or inline source."""
    index = 1
    while index < len(argv):
        token = argv[index]
        index += 1
        if token == "--":
            return _script(argv, index, product, platform)
        if token.startswith("--"):
            index += token in _LONG_OPERANDS
        elif _is_flag(token):
            letter, operand = _cluster(token)
            if letter is None:
                continue
            if not operand:
                operand = argv[index] if index < len(argv) else ""
                index += 1
            if letter == "m":
                return _module(operand, index, product)
            if letter == "c":
                return _Entry("bootstrap", index) if _is_bootstrap(operand, product) else None
        else:
            return _script(argv, index - 1, product, platform)
    return None


def _cluster(token: str) -> tuple[str | None, str]:
    """The option letter of an interpreter cluster that takes an operand, and what is attached to it."""
    for position, letter in enumerate(token[1:], 1):
        if letter in "cm" or letter in _INTERPRETER_OPERANDS:
            return letter, token[position + 1 :]
    return None, ""


def _module(name: str, start: int, product: Product) -> _Entry | None:
    if name in product.main_modules:
        return _Entry("module", start)
    if name in product.gateway_modules:
        return _Entry("gateway", start, gateway=True)
    return None


def _script(argv: Sequence[str], index: int, product: Product, platform: str) -> _Entry | None:
    if index >= len(argv):
        return None
    path = _path(argv[index], platform)
    base = _base(path)
    if any(_ends_with(path, tail) for tail in _scripts(product.gateway_modules) + product.gateway_scripts):
        return _Entry("gateway", index + 1, gateway=True)
    if base in product.gateway_commands:
        return _Entry("gateway", index + 1, gateway=True)
    if base == product.command or any(_ends_with(path, tail) for tail in _scripts(product.main_modules)):
        return _Entry("script", index + 1)
    return None


def _scripts(modules: Sequence[str]) -> tuple[str, ...]:
    """File spellings of modules: `a.main` is `a/main.py`, a package is its `__main__.py`."""
    paths = [name.replace(".", "/") for name in modules]
    return tuple(f"{path}.py" if "/" in path else f"{path}/__main__.py" for path in paths)


@functools.cache
def _bootstrap_shapes(modules: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Inline sources that only run our entry point in the same process, anchored at both ends."""
    names = "|".join(re.escape(name) for name in modules)
    quoted = rf"(?P<q>['\"])(?:{names})(?P=q)"
    main = r"['\"]__main__['\"]"
    return (
        re.compile(
            rf"\s*import runpy\s*[;\n]\s*runpy\.run_module\({quoted}"
            rf"(?=[^)]*alter_sys=True)(?:,\s*(?:run_name={main}|alter_sys=True))+\)\s*"
        ),
        re.compile(
            rf"\s*import sys\s*[;\n]\s*from (?:{names}) import main\s*[;\n]\s*(?:raise SystemExit|sys\.exit)\(main\(\)\)\s*"
        ),
    )


def _is_bootstrap(source: str, product: Product) -> bool:
    return any(shape.fullmatch(source) for shape in _bootstrap_shapes(product.main_modules))


# ---- verdict ------------------------------------------------------------------------------------------------------------------


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
    entry = _find_entry(argv, product, platform)
    if entry is None:
        return Classification(gateway_run=False, why=_why_not(argv, platform))
    tokens = argv
    if _windows_style(argv[0], platform):
        tokens = [token.lower() if not _is_flag(token) else token for token in argv]
    return _dedicated(tokens, entry) if entry.gateway else _command(tokens, entry)


def _is_cut(argv: Sequence[str]) -> bool:
    """Whether a command line was shortened for display, or ends inside the path of its interpreter."""
    if any(token.startswith("…") or token.endswith("…") for token in (argv[0], argv[-1])):
        return True
    base = re.split(r"[/\\]", argv[0])[-1]
    return len(argv) == 1 and _CUT_FOLDER.match(base) is not None


def _why_not(argv: Sequence[str], platform: str) -> str:
    base = clean(_base(_path(argv[0], platform)), 60)
    if _INTERPRETER.match(base):
        return (
            f"{base} runs a script, module or inline source that is not ours; later arguments are its data."
        )
    return (
        f"The program is {base or 'unnamed'}; what its arguments say is data, or runs in a child of its own."
    )


def _dedicated(tokens: Sequence[str], entry: _Entry) -> Classification:
    _, gateway = _grammars()
    walk = _walk(tokens, entry.start, gateway)
    profile = walk.profile or _profile_after(tokens, walk.index, gateway)
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


def _command(tokens: Sequence[str], entry: _Entry) -> Classification:
    top, gateway = _grammars()
    walk = _walk(tokens, entry.start, top)
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
    inner = _walk(tokens, rest, gateway)
    verb = tokens[inner.index].lower() if inner.index < len(tokens) else "run"
    behind = _walk(tokens, inner.index + 1, gateway)
    profile = walk.profile or inner.profile or _profile_after(tokens, inner.index + 1, gateway)
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
    tokens: Sequence[str], entry: _Entry, walk: _Walk, subcommand: str, *, short_lived: bool
) -> Classification:
    top, _ = _grammars()
    rest = tokens[walk.index + 1 :]
    for_people = short_lived or any(flag in rest for flag in ("-h", "--help", "--status", "--stop"))
    role: Role = "command" if for_people else _BACKENDS.get(subcommand, "command")
    return Classification(
        gateway_run=False,
        profile=walk.profile or _profile_after(tokens, walk.index + 1, top),
        subcommand=subcommand,
        role=role,
        entry=entry.how,
        why=f"The {entry.how} entry runs the subcommand {clean(subcommand, 40)}.",
    )


# ---- text, where the system has no list ---------------------------------------------------------------------------------------


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
    return attrs.evolve(classify(split_text(text), product=product, platform=platform), exact=False)


def needle_for(product: Product = NEDURA) -> re.Pattern[bytes]:
    """A pattern that every command line with an entry of ours contains. For skipping the others quickly, never for identity."""
    names = {product.command, *product.main_modules, *product.gateway_modules, *product.gateway_commands}
    names |= {path.rpartition("/")[2] for path in product.gateway_scripts}
    names |= set(_scripts(product.main_modules)) | set(_scripts(product.gateway_modules))
    roots = sorted({name for name in names if not any(other != name and other in name for other in names)})
    return re.compile(b"|".join(re.escape(os.fsencode(name)) for name in roots), re.IGNORECASE)


def display_command(argv: Sequence[str]) -> str:
    """A command line for people: secret values masked, then cut to 120 characters."""
    return clean(redact(" ".join(argv)), DISPLAY_WIDTH)


def profile_or_default(profile: str | None) -> str:
    """A named profile, or the default one."""
    return profile or DEFAULT_PROFILE
