"""Bounded YAML in, comment-preserving YAML out. Imports ruamel, so its users import it when they need it (25 ms).

Hostile YAML is an error by name (threats.md 7): 1 MiB, depth 64, 100k nodes after alias expansion, the core schema's tags only.
"""

from __future__ import annotations

import io
import re
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node
from ruamel.yaml.scanner import RoundTripScanner

from nedura.errors import ConfigError
from nedura.text import clean

__all__ = ["MAX_BYTES", "dump_yaml", "empty_map", "parse_yaml"]

MAX_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 64

_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("map", "seq", "str", "null", "bool", "int", "float", "timestamp", "merge", "binary", "set", "omap")
)  # fmt: skip
_INDENTED_LIST: Final = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n\1 +- ", re.MULTILINE)


class _TooDeep(YAMLError):
    """More levels than anything sane has."""


class _BoundedScanner(RoundTripScanner):
    """Counts open brackets: each may start a key, so the scanner looks ahead over all of them before the composer sees one."""

    def fetch_flow_collection_start(self, token: Any, to_push: str) -> None:
        """`[` or `{`."""
        if self.flow_level >= MAX_DEPTH:
            raise _TooDeep(f"nested deeper than {MAX_DEPTH} levels")
        super().fetch_flow_collection_start(token, to_push)


class _BoundedComposer(Composer):
    """Counts levels while it reads: the scanner's cost grows with the square of the depth, so a later check is too late."""

    level = 0

    def compose_sequence_node(self, anchor: Any) -> Any:
        """A list, one level down."""
        return self._deeper(super().compose_sequence_node, anchor)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """A map, one level down."""
        return self._deeper(super().compose_mapping_node, anchor)

    def _deeper(self, compose: Any, anchor: Any) -> Any:
        self.level += 1
        if self.level > MAX_DEPTH:
            raise _TooDeep(f"nested deeper than {MAX_DEPTH} levels")
        try:
            return compose(anchor)
        finally:
            self.level -= 1


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.Scanner = _BoundedScanner
    yaml.Composer = _BoundedComposer
    yaml.preserve_quotes = True
    yaml.width = 1 << 16
    return yaml


def _fail(what: str, reason: str, mark: Any = None) -> ConfigError:
    place = f"{what} line {mark.line + 1}, column {mark.column + 1}" if mark is not None else what
    return ConfigError(f"{place}: {clean(reason, 160)}.")


def _describe(error: MarkedYAMLError, what: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    return _fail(what, str(error.problem or error.context or "not valid YAML").split("\n", 1)[0], mark)


def parse_yaml(data: bytes, what: str) -> Any:
    """Parse hostile or hand-written YAML for a round trip.

    Args:
        data: the file's bytes, UTF-8 with or without BOM.
        what: how errors call it, for example the file's name.

    Raises:
        ConfigError: not YAML, or beyond the limits; names line and column.
    """
    if len(data) > MAX_BYTES:
        raise _fail(what, f"larger than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _fail(f"{what} line {line}", "not UTF-8 text") from error
    try:
        return _construct(text, what)
    except MarkedYAMLError as error:
        raise _describe(error, what) from error
    except RecursionError as error:
        raise _fail(what, f"nested deeper than {MAX_DEPTH} levels") from error
    except YAMLError as error:
        raise _fail(what, str(error).split("\n", 1)[0]) from error
    except (ValueError, TypeError, OverflowError) as error:  # a date such as 2024-99-99, an unhashable key
        raise _fail(what, f"a value cannot be read: {error}") from error


def _construct(text: str, what: str) -> Any:
    constructor, parser = _yaml().get_constructor_parser(io.StringIO(text))
    try:
        node = constructor.composer.get_single_node()
        if node is None:
            return None
        _check(node, what)
        return constructor.construct_document(node)
    finally:
        parser.dispose()


def _check(root: Node, what: str) -> None:
    """Tags, depth and size after alias expansion, each node visited once however often it is aliased."""
    sizes: dict[int, tuple[int, int]] = {}  # node id -> expanded nodes, expanded height
    open_nodes: set[int] = set()

    def visit(node: Node) -> tuple[int, int]:
        if id(node) in sizes:
            return sizes[id(node)]
        if str(node.tag) not in _TAGS:
            raise _fail(what, f"the tag {node.tag} is not allowed", node.start_mark)
        if id(node) in open_nodes:
            raise _fail(what, "a value contains itself", node.start_mark)
        open_nodes.add(id(node))
        count, height = 1, 1
        for child in _children(node):
            more, tall = visit(child)
            count, height = count + more, max(height, tall + 1)
            if count > MAX_NODES or height > MAX_DEPTH:
                raise _fail(what, f"more than {MAX_NODES} values or {MAX_DEPTH} levels", node.start_mark)
        open_nodes.discard(id(node))
        sizes[id(node)] = count, height
        return count, height

    visit(root)


def _children(node: Node) -> list[Node]:
    match node.value:
        case [(_, _), *_]:
            return [part for pair in node.value for part in pair]
        case list():
            return list(node.value)
        case _:
            return []


def empty_map(before: bytes) -> Any:
    """An empty map that still carries the comments of a file that holds nothing else."""
    content = CommentedMap()
    note = before.decode("utf-8-sig").replace("\r\n", "\n").strip("\n")
    if note:
        content.yaml_set_start_comment("\n".join(re.sub(r"^#\s?", "", line) for line in note.split("\n")))
    return content


def dump_yaml(content: Any, before: bytes) -> bytes:
    """Write parsed content back in the manner (line ends, list indent) of the bytes it came from."""
    yaml = _yaml()
    text = before.decode("utf-8-sig").replace("\r\n", "\n")
    if _INDENTED_LIST.search(text):
        yaml.indent(mapping=2, sequence=4, offset=2)
    if not content:
        return before if not _has_values(before) else b"{}\n"
    stream = io.StringIO()
    yaml.dump(content, stream)
    after = stream.getvalue()
    return (after.replace("\n", "\r\n") if b"\r\n" in before else after).encode()


def _has_values(before: bytes) -> bool:
    return bool(parse_yaml(before, "before"))
