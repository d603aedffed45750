"""Where a program's own code begins in an argument list: argv[0] itself, or what the interpreter at argv[0] is told to run. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

import attrs

from nedura.fleet.argv_walk import is_flag
from nedura.product import Product

__all__ = ["Entry", "base_name", "find_entry", "is_interpreter", "module_files", "windows_style"]

_INTERPRETER: Final = re.compile(r"(?:[Pp]ython|pypy)w?(?:\d+(?:\.\d+)*)?(?:[a-z]|_d|-dbg)?")
_OPERAND_LETTERS: Final = "cmWXQ"
_PRINTS_ONLY: Final = frozenset("hV?")
"""Letters after which the interpreter prints about itself and runs nothing."""
_LONG_PRINTS: Final = frozenset({"--help", "--version", "--help-all", "--help-env", "--help-xoptions"})
_SCRIPT_TAILS: Final = ("-script.pyw", "-script.py")
_LONG_OPERANDS: Final = frozenset({"--check-hash-based-pycs", "--jit"})


def windows_style(token: str, platform: str) -> bool:
    """Whether a path follows the rules of Windows: it ignores case and uses back-slashes."""
    return platform == "win32" or "\\" in token or token.lower().endswith(".exe")


def _path(token: str, platform: str) -> str:
    """A path in one spelling: quotes off, forward slashes, lower case where the system ignores case."""
    text = token.strip("\"'") if token[:1] in "\"'" else token
    return text.replace("\\", "/").lower() if windows_style(text, platform) else text


def base_name(token: str, platform: str) -> str:
    """The program's name in a path, without `.exe`."""
    return _base(_path(token, platform))


def is_interpreter(base: str) -> bool:
    """Whether a program's name is Python's."""
    return _INTERPRETER.fullmatch(base) is not None


def _base(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".exe")


def _ends_with(path: str, tail: str) -> bool:
    return path == tail or path.endswith("/" + tail)


@attrs.frozen
class Entry:
    """How an argument list enters our code, and where its own arguments begin.

    Attributes:
        how: `command`, `module`, `script`, `gateway` or `bootstrap`.
        start: index of the first argument that is the program's own.
        gateway: the entry does nothing else than run the gateway.
    """

    how: str
    start: int
    gateway: bool = False


def find_entry(argv: Sequence[str], product: Product, platform: str) -> Entry | None:
    """How an argument list enters our code; None when it does not.

    Args:
        argv: the argument list.
        product: names to go by.
        platform: `sys.platform` of its system.
    """
    program = _path(argv[0], platform)
    base = _base(program)
    if base == product.command:
        return Entry("command", 1)
    if base in product.gateway_commands:
        return Entry("gateway", 1, gateway=True)
    if is_interpreter(base):
        return _interpreted(argv, product, platform)
    return None


def _interpreted(argv: Sequence[str], product: Product, platform: str) -> Entry | None:
    """Walk the interpreter's own options to its script, module or inline source."""
    index = 1
    while index < len(argv):
        token = argv[index]
        index += 1
        if token == "--":
            return _script(argv, index, product, platform)
        if token in _LONG_PRINTS:
            return None
        if token.startswith("--"):
            index += token in _LONG_OPERANDS
        elif is_flag(token):
            letter, operand = _cluster(token)
            if letter is None:
                continue
            if letter in _PRINTS_ONLY:
                return None
            if not operand:
                operand = argv[index] if index < len(argv) else ""
                index += 1
            if letter == "m":
                return _module(operand, index, product)
            if letter == "c":
                return Entry("bootstrap", index) if _is_bootstrap(operand, product) else None
        else:
            return _script(argv, index - 1, product, platform)
    return None


def _cluster(token: str) -> tuple[str | None, str]:
    """The option letter of an interpreter cluster that decides what runs, and what is attached to it."""
    for position, letter in enumerate(token[1:], 1):
        if letter in _OPERAND_LETTERS or letter in _PRINTS_ONLY:
            return letter, token[position + 1 :]
    return None, ""


def _module(name: str, start: int, product: Product) -> Entry | None:
    name = name.removesuffix(".__main__")
    if name in product.main_modules:
        return Entry("module", start)
    if name in product.gateway_modules:
        return Entry("gateway", start, gateway=True)
    return None


def _script(argv: Sequence[str], index: int, product: Product, platform: str) -> Entry | None:
    if index >= len(argv):
        return None
    path = _path(argv[index], platform)
    base = _base(path)
    if windows_style(argv[index], platform):
        for tail in _SCRIPT_TAILS:  # what an older packaging tool puts beside its .exe
            base = base.removesuffix(tail)
    if any(
        _ends_with(path, tail) for tail in module_files(product.gateway_modules) + product.gateway_scripts
    ):
        return Entry("gateway", index + 1, gateway=True)
    if base in product.gateway_commands:
        return Entry("gateway", index + 1, gateway=True)
    if base == product.command or any(_ends_with(path, tail) for tail in module_files(product.main_modules)):
        return Entry("script", index + 1)
    return None


def module_files(modules: Sequence[str]) -> tuple[str, ...]:
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
