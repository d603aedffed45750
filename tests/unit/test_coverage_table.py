"""docs/coverage.md and docs/field-reports.md are where anyone sees what is proven and what is missing: every test they name must exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "coverage.md"
REPORTS = ROOT / "docs" / "field-reports.md"
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


@pytest.mark.parametrize("table", [TABLE, REPORTS], ids=lambda path: path.name)
def test_every_named_test_exists(table: Path) -> None:
    named = NODE.findall(table.read_text("utf-8"))
    assert len(named) > 100
    for path, name in named:
        assert (ROOT / path).is_file(), f"{path} is named in {table.name} and not there"
        if name:
            assert name in names_in(ROOT / path), f"{path}::{name} is named in {table.name} and not there"


def test_every_row_is_proven_or_says_open() -> None:
    found = rows()
    assert len(found) > 100
    for row in found:
        assert len(row) == 3, row
        proof = row[2]
        assert NODE.search(proof) or "`./run" in proof or "`nedura" in proof or proof.startswith("open"), row


def reports() -> dict[str, str]:
    """Proof by report: each of the 118 has one row."""
    found = re.findall(r"^\| (C\d{3}) \| [\w. -]+ \| (.+) \|$", REPORTS.read_text("utf-8"), re.MULTILINE)
    assert len(found) == len(dict(found)) == 118
    return dict(found)


def test_every_field_report_has_a_test_of_its_name_or_says_why_not() -> None:
    for report, proof in reports().items():
        named = [name for _, name in NODE.findall(proof)]
        if named:
            assert any(f"_{report.lower()}_" in name for name in named), f"{report} names no test of its own"
        else:
            assert len(proof.split()) >= 5, f"{report} is neither proven nor explained"
