"""What the old process imports before its tree moves: its own version, and nothing that somebody put beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import nedura
from nedura.update.completion.preload import preload
nedura.__path__.append(sys.argv[1] + "/nedura")  # the tree's own part of the package
files = None if sys.argv[2] == "-" else frozenset(sys.argv[2].split(","))
print(preload(Path(sys.argv[1]), files))
print(sorted(name for name in sys.modules if name.startswith("nedura.zz")))
"""
BODIES = {
    "zz_syntax.py": "x = (\n",
    "zz_exit.py": "raise SystemExit\n",
    "zz_raises.py": "1 / 0\n",
    "zz_extra.py": "import no_such_module_at_all\n",
    "zz_fine.py": "X = 1\n",
    "zz_package/__init__.py": "raise SystemExit(3)\n",
    "zz_package/inner.py": "print('ran')\n",
}


def run(tree: Path, files: str) -> list[str]:
    for name, body in BODIES.items():
        place = tree / "nedura" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body)
    done = subprocess.run(
        [sys.executable, "-B", "-c", SCRIPT, str(tree), files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_script_beside_our_modules_is_not_run(tmp_path: Path) -> None:
    """It could end the update with 0, ask something, or write into what `--json` prints."""
    assert run(tmp_path, "nedura/zz_fine.py") == ["()", "['nedura.zz_fine']"]


def test_a_module_of_the_version_that_the_owner_broke_is_named_and_left_out(tmp_path: Path) -> None:
    faults, loaded = run(tmp_path, "-")
    assert loaded == "['nedura.zz_fine']"
    assert "nedura.zz_exit: SystemExit" in faults
    assert "nedura.zz_raises: ZeroDivisionError: division by zero" in faults
    assert "nedura.zz_syntax: SyntaxError" in faults
    assert "nedura.zz_package: SystemExit: 3" in faults
    assert "zz_extra" not in faults, "an extra that is not there is nobody's fault"
