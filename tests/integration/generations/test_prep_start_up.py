"""What a package could run at each start of Python is refused before that Python first starts, under any name (threats.md 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nedura.update.generation.start_hooks import is_start_hook, judge_pth

RUN = "import os; os.system('true')\n"


@pytest.mark.parametrize(
    "text",
    [
        RUN, f"# a comment\n{RUN}", "import\tos\n", "# x\rimport os\r", f"\ufeff{RUN}", f"{'#' * 70_000}\n{RUN}",
        "#" * (2 << 20), "/tmp\n", "../elsewhere\n", "\ufeff/tmp\n",
    ],
)  # fmt: skip
def test_a_pth_file_that_runs_or_leads_elsewhere_is_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / ".pth").write_text(text)
    assert judge_pth(str(tmp_path), ".pth")


def test_a_pth_file_that_names_a_folder_beside_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_text("# here\n\nvendored\n./vendored/more\n")
    assert judge_pth(str(tmp_path), "x.pth") == ""


@pytest.mark.parametrize(
    "name", ["sitecustomize.pyc", "usercustomize.so", "sitecustomize.abi3.so", "sitecustomize/"]
)
def test_a_start_up_module_by_any_name_is_seen(name: str) -> None:
    assert is_start_hook(name)
