"""A swap under Windows' rules, on a file system in memory that refuses what Windows refuses (tests/kits/windows_files.py)."""

from __future__ import annotations

from pathlib import PureWindowsPath
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nedura.errors import StoreError, UpdateError
from nedura.update.commit.zip_files import SwapFiles, folded
from nedura.update.commit.zip_rules import POSIX, WINDOWS, Fault, as_windows_opens_it, fault_of
from nedura.update.commit.zip_swap import SWAP, recover_swap, swap_tree
from nedura.update.commit.zip_tree import name_fault
from nedura.update.source.release import windows_problem
from tests.kits.windows_files import How, Killed, Tree, WindowsFiles, refused, win32_parts

LIVE, NEW = PureWindowsPath("C:\\app"), PureWindowsPath("C:\\home\\release")
OWNERS = {".env": "KEY=1", "venv/python.exe": "py"}
OLD = {
    **OWNERS, "README.md": "old", "pkg/a.py": "A = 1", "pkg/same.py": "same", "pkg/gone.py": "x", "pkg/sub/b.py": "B = 1",
    "pkg/tool.exe": "tool 1", "only_old/x": "x",
}  # fmt: skip
AFTER = {
    "Readme.md": "new", "pkg/a.py": "A = 2", "pkg/same.py": "same", "pkg/sub/b.py": "B = 2", "pkg/tool.exe": "tool 2",
    "pkg/fresh.py": "F = 1", "zoo/c.py": "C = 1",
}  # fmt: skip
WHOLE = {**OWNERS, **AFTER}


@attrs.define
class Machine:
    """A live tree, a new one, and the swap between them."""

    old: Tree = OLD
    new: Tree = AFTER
    live: PureWindowsPath = LIVE
    system: WindowsFiles = attrs.field(factory=WindowsFiles)

    def __attrs_post_init__(self) -> None:
        self.system.write(self.live, self.old)
        self.system.write(NEW, {**self.new, ".env": "evil"})

    @property
    def files(self) -> SwapFiles:
        return SwapFiles(self.system, WINDOWS)

    @property
    def now(self) -> dict[str, Any]:
        return self.system.read_tree(self.live)

    def swap(self) -> None:
        news = {folded(path.split("/")[0]) for path in self.new}
        tops = {path.split("/")[0] for path in self.old if path not in OWNERS}
        gone = [top for top in tops if folded(top) not in news]
        swap_tree(NEW, self.live, gone=gone, paths=self.new, files=self.files, stage=self.system.copy)

    def recover(self) -> str:
        return recover_swap(self.live, files=self.files)

    def hold(self, path: str, how: How, seconds: float = 1e9) -> None:
        self.system.hold(self.live / path, how, seconds)


def test_a_swap_nobody_disturbs() -> None:
    machine = Machine()
    machine.swap()
    assert machine.now == WHOLE
    assert machine.system.slept == []


@pytest.mark.parametrize("path", ["pkg/a.py", "README.md", "only_old/x", "pkg"])
def test_a_virus_scanner_that_lets_go_is_waited_for(path: str) -> None:
    machine = Machine()
    machine.hold(path, "plain", 1.2)
    machine.swap()
    assert machine.now == WHOLE
    assert 1.2 <= sum(machine.system.slept) <= 2


@pytest.mark.parametrize("path", ["README.md", "pkg/a.py", "pkg/sub/b.py", "pkg/gone.py", "pkg/tool.exe"])
@pytest.mark.parametrize("how", ["plain", "exclusive"])
def test_a_file_that_somebody_keeps_open_is_named_and_nothing_changes(path: str, how: How) -> None:
    machine = Machine()
    machine.hold(path, how)
    with pytest.raises(UpdateError) as caught:
        machine.swap()
    assert path.casefold() in caught.value.message.casefold()
    assert "in use" in caught.value.message
    assert (caught.value.stop_class, "as it was" in caught.value.advice) == ("files_in_use", True)
    assert machine.now == OLD, "also in the case of its letters"
    assert sum(machine.system.slept) <= 2 * WINDOWS.patience
    machine.system.holders.clear()
    machine.swap()
    assert machine.now == WHOLE


def test_an_open_file_that_stays_the_same_holds_nothing_up() -> None:
    machine = Machine()
    machine.hold("pkg/same.py", "plain")
    machine.swap()
    assert machine.now == WHOLE


@pytest.mark.parametrize("folder", ["pkg", "pkg/sub"])
def test_a_terminal_that_stands_in_a_folder_holds_nothing_up(folder: str) -> None:
    """Its files are swapped one by one: the folder itself stays, and with it what has it open."""
    machine = Machine()
    machine.hold(folder, "plain")
    machine.swap()
    assert machine.now == WHOLE


def test_a_running_program_is_set_aside_and_goes_when_it_has_ended() -> None:
    machine = Machine()
    machine.hold("pkg/tool.exe", "program")
    machine.swap()
    left = {
        path: text
        for path, text in machine.now.items()
        if path not in (SWAP, "pkg/tool.exe.nedura-update-old")
    }
    assert left == WHOLE
    assert machine.recover() == "left"
    with pytest.raises(UpdateError) as caught:
        machine.swap()
    assert caught.value.stop_class == "files_in_use"
    machine.system.holders.clear()
    assert machine.recover() == "finished"
    assert machine.now == WHOLE
    assert machine.recover() == "none"


def test_what_cannot_be_put_back_is_put_back_at_the_next_launch() -> None:
    """A scanner takes hold of a new file just when another one cannot be replaced."""
    machine = Machine({**OLD, "zoo/c.py": "C = 0"})
    machine.hold("zoo/c.py", "plain")

    def scan(system: WindowsFiles) -> None:
        if system.read_tree(LIVE).get("Readme.md") == "new" and len(system.holders) == 1:
            system.hold(LIVE / "Readme.md", "plain")

    machine.system.on_change = scan
    with pytest.raises(
        UpdateError, match=r"zoo/c\.py cannot be replaced .* Readme\.md cannot be put back"
    ) as caught:
        machine.swap()
    assert "start the command again" in caught.value.advice
    half = machine.now
    assert (half["Readme.md"], half["pkg/a.py"], half["zoo/c.py"]) == ("new", "A = 1", "C = 0"), (
        "what can go back is back"
    )
    with pytest.raises(StoreError, match=r"Readme\.md: in use"):
        machine.recover()
    machine.system.holders.clear()
    machine.system.on_change = None
    assert machine.recover() == "undone"
    assert machine.now == machine.old


def recovered(machine: Machine) -> dict[str, Any]:
    """What the next launches make of it, killed once more at any call."""
    machine.system.holders.clear()
    machine.system.kill_at = 0
    while machine.recover() not in ("none",):
        continue
    return {path: text for path, text in machine.now.items() if ".nedura-update-" not in path.split("/")[0]}


@pytest.mark.parametrize("held", [(), ("pkg",), ("pkg/same.py", "pkg/sub"), ("pkg/a.py",)])
def test_a_kill_at_any_change_leaves_the_whole_old_or_the_whole_new_tree(held: tuple[str, ...]) -> None:
    kill, seen = 0, set()
    while True:
        kill += 1
        machine = Machine()
        machine.system.kill_at = kill
        for path in held:
            machine.hold(path, "plain")
        try:
            machine.swap()
        except Killed:
            found = recovered(machine)
            seen.add(found == OLD)
            assert found in (OLD, WHOLE), f"killed at change {kill}"
            continue
        except UpdateError:
            assert machine.now == OLD
        break
    assert kill > 20
    assert True in seen


def test_a_recovery_that_is_killed_itself_is_finished_by_the_next_one() -> None:
    for first in (6, 10, 14, 18, 22):
        for second in range(1, 40):
            machine = Machine()
            machine.hold("pkg", "plain")
            machine.system.kill_at = first
            with pytest.raises(Killed):
                machine.swap()
            machine.system.holders.clear()
            machine.system.kill_at = machine.system.changes + second
            try:
                machine.recover()
            except Killed:
                assert recovered(machine) in (OLD, WHOLE), (first, second)
                continue
            break


NAMES = st.sampled_from(["a", "A", "b", "c.py", "C.py", "d"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def tree_of(paths: dict[str, str]) -> dict[str, str]:
    """Only what one file system without case can hold: no twins, no file where another has a folder."""
    kept: dict[str, str] = {}
    spelled: dict[str, tuple[str, bool]] = {}
    for path, text in paths.items():
        parts = path.split("/")
        wanted = {
            "/".join(parts[:n]).casefold(): ("/".join(parts[:n]), n < len(parts))
            for n in range(1, len(parts) + 1)
        }
        if all(spelled.get(key, value) == value for key, value in wanted.items()) and path not in kept:
            spelled |= wanted
            kept[path] = text
    return kept


TREES = st.dictionaries(PATHS, st.sampled_from(["1", "2"]), min_size=1, max_size=6).map(tree_of)
HOLDS = st.lists(
    st.tuples(
        st.integers(0, 20), st.sampled_from(["plain", "shares deletion", "program", "exclusive"]), st.sampled_from([0.3, 2.0, 1e9])
    ),
    max_size=3,
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(old=TREES, new=TREES, holds=HOLDS, kill=st.integers(0, 40))
def test_all_or_nothing_whatever_is_open_and_whenever_it_is_killed(
    old: dict[str, str], new: dict[str, str], holds: list[tuple[int, How, float]], kill: int
) -> None:
    machine = Machine({**OWNERS, **old}, new)
    paths = sorted({*old, *(path.rsplit("/", 1)[0] for path in old if "/" in path)})
    for number, how, seconds in holds:
        machine.hold(paths[number % len(paths)], how, seconds)
    machine.system.kill_at = kill
    before, after = {**OWNERS, **old}, {**OWNERS, **new}
    try:
        machine.swap()
    except Killed:
        assert folded_keys(recovered(machine)) in (folded_keys(before), folded_keys(after))
        return
    except UpdateError as error:
        stopped = error.stop_class
    else:
        stopped = ""
    found = recovered(machine)
    if stopped:
        assert (stopped, found) == ("files_in_use", before)
    else:
        assert folded_keys(found) == folded_keys(after)


def folded_keys(tree: dict[str, Any]) -> dict[str, Any]:
    """A folder that somebody holds keeps the case of its name; its content is what counts."""
    return {path.casefold(): text for path, text in tree.items()}


def test_temporary_names_beyond_260_characters_are_no_obstacle() -> None:
    deep = "d" * 60 + "/" + "e" * 60 + "/f.py"
    machine = Machine({"pkg/" + deep: "1"}, {"pkg/" + deep: "2"}, live=PureWindowsPath("C:\\" + "x" * 110))
    longest = len(str(machine.live / "pkg" / deep))
    assert longest < 260 < longest + len(".nedura-update-staging")
    machine.hold("pkg/" + deep.rsplit("/", 1)[0], "plain")
    machine.swap()
    assert machine.now == {"pkg/" + deep: "2"}


def test_a_path_that_nobody_could_open_is_refused_before_anything_moves() -> None:
    machine = Machine(
        live=PureWindowsPath("C:\\" + "x" * 120), new={**AFTER, "pkg/" + "é" * 140 + ".py": "x"}
    )
    with pytest.raises(UpdateError, match=r"271 characters here; 259 can be opened") as caught:
        machine.swap()
    assert "shorter path" in caught.value.advice
    assert (machine.now, machine.system.changes) == (OLD, 0)
    assert POSIX.too_long(machine.live, machine.new) is None


@pytest.mark.parametrize(
    ("code", "fault"),
    [(5, "IN_USE"), (32, "IN_USE"), (33, "IN_USE"), (1224, "IN_USE"), (112, "FULL"), (206, "TOO_LONG"), (19, "DENIED"), (87, "OTHER")],
)  # fmt: skip
def test_windows_own_code_counts(code: int, fault: str) -> None:
    error = PermissionError(13, "Permission denied")
    assert fault_of(error) is Fault.DENIED, "elsewhere a denial is one"
    error.winerror = code  # type: ignore[attr-defined]
    assert fault_of(error) is Fault[fault]


@pytest.mark.parametrize(
    ("path", "opened"),
    [
        ("C:\\short", "\\\\?\\C:\\short"),
        ("C:\\" + "a" * 300, "\\\\?\\C:\\" + "a" * 300),
        ("C:/" + "a" * 300 + "/./b/../c", "\\\\?\\C:\\" + "a" * 300 + "\\c"),
        ("\\\\server\\share\\" + "a" * 300, "\\\\?\\UNC\\server\\share\\" + "a" * 300),
        ("\\\\?\\C:\\" + "a" * 300, "\\\\?\\C:\\" + "a" * 300),
        ("a" * 300, "a" * 300),
        ("C:" + "a" * 300, "C:" + "a" * 300),
    ],
)  # fmt: skip
def test_the_long_form(path: str, opened: str) -> None:
    assert as_windows_opens_it(path) == opened
    assert as_windows_opens_it(opened) == opened


PART = st.text(st.sampled_from("aConuxl1P.~ ¹:\\/$T"), min_size=1, max_size=8)


@given(parts=st.lists(PART, min_size=1, max_size=3))
def test_a_name_that_is_let_in_is_that_very_name_on_windows(parts: list[str]) -> None:
    path = "/".join(parts)
    if windows_problem(path) or "" in path.split("/"):
        return
    assert win32_parts(f"C:\\{path}") == ["C:", *path.split("/")]


ODD = [
    "NUL",
    "con.txt",
    "aux .py",
    "COM¹",
    "lpt0.x",
    "CONIN$",
    "a.",
    "a ",
    "x:y",
    "a*",
    "GIT~1",
    "ENV~1",
    "nedura~2.py",
]


@pytest.mark.parametrize("name", ODD)
def test_names_that_windows_takes_for_something_else(name: str) -> None:
    assert windows_problem(f"pkg/{name}")
    assert not windows_problem("pkg/backup~.py")
    assert not windows_problem("pkg/console1.py")


APART = [
    ".ENV", "Venv/x", ".Git/config", "NODE_MODULES/a", "pkg/x.nedura-update-old", "pkg/x.NEDURA-update-staging/y", "pkg/" + "n" * 234,
]  # fmt: skip


@pytest.mark.parametrize("path", APART)
def test_names_that_a_swap_could_not_keep_apart(path: str) -> None:
    """A twin of the owner's `.env` would replace it where letter case is not told apart: there it is the same name."""
    assert name_fault(path)
    assert not name_fault("pkg/" + "n" * 233)
    assert not any(map(name_fault, (".env", "venv/x", "pkg/.ENV", "pkg/venv/x")))


def test_the_kit_refuses_as_windows_does() -> None:
    """The fake itself: codes 32 and 5 for open files and for folders above them, 183 for a name that is taken, 206 for a long path."""
    machine = Machine()
    system = machine.system
    machine.hold("pkg/a.py", "shares deletion")
    machine.hold("README.md", "plain")
    calls = {
        32: ("C:\\app\\readme.MD", "C:\\app\\x"), 5: ("C:\\app\\pkg", "C:\\app\\x"), 2: ("C:\\app\\no", "C:\\app\\x"),
        183: ("C:\\app\\pkg\\a.py", "C:\\app\\pkg\\same.py"), 206: ("C:\\app\\pkg\\a.py", "C:\\app\\" + "x" * 260),
    }  # fmt: skip
    for code, (source, target) in calls.items():
        with pytest.raises(OSError, match=f"WinError {code}"):
            system.rename(source, target)
    system.rename("C:\\app\\pkg\\a.py", "C:\\app\\pkg\\moved.py")
    assert str(refused(5, "x")) == "[Errno 13] [WinError 5]: 'x'"
