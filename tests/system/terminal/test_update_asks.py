"""An update on a real terminal asks before it brings local edits back, in the live view and in plain lines."""

from __future__ import annotations

import subprocess

import pytest

from tests.kits.checkout import checkout_world
from tests.kits.terminal import open_screen


@pytest.mark.timeout(200)
@pytest.mark.parametrize("plain", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_answer_at_the_terminal_counts(plain: bool) -> None:
    with checkout_world() as here:
        readme = here.tree / "README.md"
        before = readme.read_text()
        readme.write_text(f"{before}mine\n")
        new = here.site.origin.commit({"nedura/note.txt": "new\n"}, "newer")
        environ = {**here.environ, **({"TERM": "dumb"} if plain else {})}
        command = here.folder / "there"  # away from this checkout: `python -m` looks where it was started
        command.write_text(f'#!/bin/sh\ncd "{here.folder}" && exec "{here.site.launcher}" "$@"\n')
        command.chmod(0o755)
        with open_screen(
            "update", "--no-backup", "--no-probe", home=here.home, rows=30, columns=100, environ=environ,
            launcher=command,
        ) as screen:  # fmt: skip
            screen.until("Bring them back after the update? [Y/n]", 60)
            screen.send("n\r")
            screen.until("Updated to", 60)
            assert screen.ended(60) == 0
        assert here.head == new
        assert readme.read_text() == before
        stashes = subprocess.run(
            ["git", "stash", "list"], cwd=here.tree, capture_output=True, text=True, check=True
        )
        assert len(stashes.stdout.splitlines()) == 1
