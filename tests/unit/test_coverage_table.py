"""docs/coverage.md is where anyone sees what is proven and what is missing: every test it names must exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "coverage.md"
NODE = re.compile(r"`(tests/[\w/.-]+\.py)(?:::(\w+))?`")


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def rows() -> list[list[str]]:
    lines = [
        line
        for line in TABLE.read_text("utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| #")
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_named_test_exists() -> None:
    for path, name in NODE.findall(TABLE.read_text("utf-8")):
        assert (ROOT / path).is_file(), f"{path} is named in coverage.md and not there"
        if name:
            assert name in names_in(ROOT / path), f"{path}::{name} is named in coverage.md and not there"


def test_every_row_is_proven_or_says_open() -> None:
    found = rows()
    assert len(found) > 100
    for row in found:
        assert len(row) == 3, row
        proof = row[2]
        assert NODE.search(proof) or "`./run" in proof or "`nedura" in proof or proof.startswith("open"), row
