"""Bytecode of a tree: what the worker writes is what Python itself would take, and never another generation's file."""

from __future__ import annotations

import marshal
import os
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path

from nedura.update.generation.interpreter import base_python, inspect
from nedura.update.generation.tree import compile_tree
from nedura.update.generation.tree_files import Base

SOURCE = '"""Words."""\n\n\ndef f(a: int = 1) -> list[int]:\n    return [a for a in range(a)]\n'


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def compiled(
    folder: Path, *names: str, base: Base | None = None, written: tuple[str, ...] = ()
) -> dict[str, str]:
    return compile_tree(folder, names, inspect(base_python()), base, written=written)


def test_it_writes_what_python_itself_would(tmp_path: Path) -> None:
    path = put(tmp_path, "pkg/a.py", SOURCE)
    assert compiled(tmp_path, "pkg/a.py") == {}
    ours = Path(cache_from_source(str(path))).read_bytes()
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        wanted = Path(str(py_compile.compile("pkg/a.py", cfile=str(tmp_path / "b.pyc")))).read_bytes()
    finally:
        os.chdir(here)
    assert ours[:16] == wanted[:16]
    assert marshal.loads(ours[16:]) == marshal.loads(wanted[16:])


def test_what_does_not_compile_is_named_and_the_rest_is_compiled(tmp_path: Path) -> None:
    put(tmp_path, "good.py", SOURCE)
    put(tmp_path, "bad.py", "def f(:\n")
    put(tmp_path, "nul.py", b"a = 1\0\n")
    put(tmp_path, "latin.py", b"a = '\xe9'\n")
    put(tmp_path, "bomb.py", "a = " + "(" * 3000)
    failed = compiled(tmp_path, "good.py", "bad.py", "nul.py", "latin.py", "bomb.py", "gone.py")
    assert set(failed) == {"bad.py", "nul.py", "latin.py", "bomb.py", "gone.py"}
    assert "SyntaxError" in failed["bad.py"]
    assert "FileNotFoundError" in failed["gone.py"]
    assert [path.name for path in (tmp_path / "__pycache__").iterdir()] == [
        f"good.{sys.implementation.cache_tag}.pyc"
    ]


def test_a_written_file_never_gets_or_harms_the_bases_bytecode(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    put(old, "a.py", SOURCE)
    put(old, "same.py", SOURCE)
    assert compiled(old, "a.py", "same.py") == {}
    before = Path(cache_from_source(str(old / "a.py"))).read_bytes()
    put(new, "a.py", SOURCE.replace("1", "2"))
    os.link(old / "same.py", new / "same.py")
    (new / "__pycache__").mkdir()
    planted = Path(cache_from_source(str(new / "a.py")))
    os.link(cache_from_source(str(old / "a.py")), planted)
    base = Base(tree=old, files={}, tag=str(sys.implementation.cache_tag))
    assert compiled(new, "a.py", "same.py", base=base, written=("a.py",)) == {}
    assert Path(cache_from_source(str(old / "a.py"))).read_bytes() == before
    assert planted.read_bytes() != before
    assert os.stat(cache_from_source(str(new / "same.py"))).st_nlink == 2


def test_bytecode_of_another_python_is_not_taken_over(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    put(old, "a.py", SOURCE)
    compiled(old, "a.py")
    new.mkdir()
    os.link(old / "a.py", new / "a.py")
    assert compiled(new, "a.py", base=Base(tree=old, files={}, tag="cpython-399")) == {}
    assert os.stat(cache_from_source(str(new / "a.py"))).st_nlink == 1
