"""What a checkout move decides, row by row and as properties."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.update.commit.rules import Entry, Situation, collisions, dispose, place, sort_dirt

HERE = Situation(branch="main", target_branch="main")
AWAY = Situation(branch="feature", target_branch="main")


@pytest.mark.parametrize(
    ("at", "action"),
    [
        (HERE, "stay"),
        (attrs.evolve(HERE, dirty=True), "stay"),
        (attrs.evolve(HERE, branch=""), "switch"),
        (attrs.evolve(HERE, target_branch=""), "detach"),
        (attrs.evolve(HERE, branch="", target_branch=""), "detach"),
        (AWAY, "switch"),
        (attrs.evolve(AWAY, unmerged_work=3), "switch"),
        (attrs.evolve(AWAY, unmerged_work=3, strategy="update_in_place"), "merge"),
        (attrs.evolve(AWAY, unmerged_work=0, strategy="update_in_place"), "switch"),
        (attrs.evolve(AWAY, dirty=True), "skip"),
        (attrs.evolve(AWAY, dirty=True, strategy="update_in_place"), "skip"),
        (attrs.evolve(AWAY, unmerged_work=-1), "skip"),
        (attrs.evolve(AWAY, auto_switch=False), "skip"),
        (attrs.evolve(AWAY, unmerged_work=3, auto_switch=False), "skip"),
    ],
)
def test_where_a_move_goes(at: Situation, action: str) -> None:
    placed = place(at)
    assert placed.action == action
    if action == "skip":
        assert placed.reason


@given(
    st.sampled_from(["main", "feature", ""]),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from(["switch", "update_in_place"]),
    st.booleans(),
)
def test_a_dirty_or_unknown_parked_branch_is_never_moved(
    branch: str, dirty: bool, unmerged: int, strategy: str, auto: bool
) -> None:
    placed = place(
        Situation(
            branch=branch,
            target_branch="main",
            dirty=dirty,
            unmerged_work=unmerged,
            strategy=strategy,  # type: ignore[arg-type]
            auto_switch=auto,
        )
    )
    if branch == "feature" and (dirty or unmerged < 0 or not auto):
        assert placed.action == "skip"
    if placed.action == "merge":
        assert unmerged > 0
        assert not dirty


@pytest.mark.parametrize(
    ("untracked", "target", "found"),
    [
        (["a"], {"a"}, ("a",)),
        (["a"], {"b"}, ()),
        (["a"], {"a/b"}, ("a",)),
        (["a/b/c"], {"a/b"}, ("a/b/c",)),
        (["a/b"], {"a/c"}, ()),
        (["ab"], {"a"}, ()),
        (["nested/"], {"nested/x"}, ("nested/",)),
    ],
)
def test_what_is_in_the_way(untracked: list[str], target: set[str], found: tuple[str, ...]) -> None:
    assert collisions(untracked, target) == found


NAMES = st.lists(
    st.text("ab/", min_size=1, max_size=5).filter(lambda t: t.strip("/") == t and "//" not in t), max_size=6
)


@given(NAMES, NAMES)
def test_files_that_are_not_in_the_way_can_live_beside_the_target(
    untracked: list[str], target: list[str]
) -> None:
    free = set(untracked) - set(collisions(untracked, set(target)))
    for path in free:
        assert path not in target
        assert not any(other.startswith(path + "/") or path.startswith(other + "/") for other in target)


def entry(path: str, code: str = " M") -> Entry:
    return Entry(path=path, staged=code[0], worktree=code[1])


def test_lock_file_churn_is_a_machines_unless_its_manifest_is_edited() -> None:
    dirt = sort_dirt([entry("web/package-lock.json"), entry("package-lock.json"), entry("package.json")])
    assert dirt.machine == ("web/package-lock.json",)
    assert set(dirt.edits) == {"package-lock.json", "package.json"}
    assert sort_dirt([entry("package-lock.json", "M ")]).edits == ("package-lock.json",), "staged on purpose"
    assert sort_dirt([entry("my-package-lock.json")]).edits == ("my-package-lock.json",)
    for code in (" M", "??"):  # of a workspace, edited or new: the lock at the top records it
        dirt = sort_dirt([entry("package-lock.json"), entry("apps/web/package.json", code)])
        assert dirt.machine == ()
        assert "package-lock.json" in dirt.edits


def test_line_ends_are_noise_only_when_nothing_else_is_edited_and_git_converts() -> None:
    entries = [entry("a"), entry("b")]
    assert sort_dirt(entries, cr_only={"a", "b"}, autocrlf=True).line_ends == ("a", "b")
    assert sort_dirt(entries, cr_only={"a"}, autocrlf=True).edits == ("a", "b")
    assert sort_dirt(entries, cr_only={"a", "b"}, autocrlf=False).edits == ("a", "b")


def test_our_own_files_are_nobodys_edit() -> None:
    dirt = sort_dirt(
        [entry(".install_method", "??"), entry("mine.txt", "??"), entry("x/__pycache__/a.pyc", "??")]
    )
    assert dirt.untracked == ("mine.txt",)


@given(
    st.lists(
        st.tuples(
            st.text("abc", min_size=1, max_size=4), st.sampled_from([" M", "M ", "A ", " D", "UU", "??"])
        ),
        max_size=8,
    )
)
def test_every_change_is_sorted_exactly_once(items: list[tuple[str, str]]) -> None:
    entries = [entry(path, code) for path, code in dict(items).items()]
    dirt = sort_dirt(entries)
    sorted_paths = [*dirt.edits, *dirt.machine, *dirt.line_ends, *dirt.untracked]
    assert sorted(sorted_paths) == sorted(one.path for one in entries)


@pytest.mark.parametrize(
    ("keep", "setting", "interactive", "what"),
    [
        (True, "discard", False, "keep"),
        (False, "stash", False, "restore"),
        (False, "discard", False, "discard"),
        (False, "discard", True, "restore"),
        (False, "nonsense", False, "restore"),
    ],
)
def test_what_becomes_of_parked_edits(keep: bool, setting: str, interactive: bool, what: str) -> None:
    assert dispose(keep_stash=keep, setting=setting, interactive=interactive) == what
