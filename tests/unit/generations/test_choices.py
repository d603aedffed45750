"""Channels, interpreters, builds, room on the disk, deadlines: decisions without IO."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nedura.errors import UpdateError, UsageError
from nedura.product import Build
from nedura.update.generation.builds import build_inputs, decide_builds
from nedura.update.generation.disk import RESERVE, Need, admit, tree_need
from nedura.update.generation.interpreter import Interpreter, admits, choose
from nedura.update.generation.tree_rules import Entry
from nedura.update.notice import is_due, notice_text
from nedura.update.planning.deadlines import deadlines, total
from nedura.update.source.channels import Choice, choose_channel, newest_release

TAGS = dict.fromkeys(("v1.0.0", "v1.10.0", "v1.9.0", "v2.0.0-rc.1", "v2.0.0-canary.3", "nightly", "v1"), "x")


def test_precedence() -> None:
    def chosen(**given: str | None) -> tuple[str, str, str]:
        values = {"branch": None, "channel": None, "configured": "", "pinned_branch": "main", **given}
        choice = choose_channel(**values)  # type: ignore[arg-type]
        return choice.branch, choice.channel, choice.source

    assert chosen() == ("main", "", "install")
    assert chosen(configured="stable") == ("", "stable", "config")
    assert chosen(configured="stable", channel="canary") == ("", "canary", "option")
    assert chosen(configured="stable", channel="canary", branch="work") == ("work", "", "option")
    assert chosen(configured="main", pinned_branch="trunk") == ("trunk", "", "config")
    assert chosen(pinned_branch="") == ("", "stable", "install")


@pytest.mark.parametrize("branch", ["", "  "])
def test_an_empty_branch_is_no_default(branch: str) -> None:
    """`--branch "$BRANCH"` of a script whose variable is unset must not update against the main branch."""
    with pytest.raises(UsageError, match="names no branch"):
        choose_channel(branch=branch, channel=None, configured="", pinned_branch="main")


def test_an_unknown_channel_is_named() -> None:
    with pytest.raises(UsageError, match="'beta'"):
        choose_channel(branch=None, channel="beta", configured="", pinned_branch="main")


def test_newest_release() -> None:
    assert newest_release(TAGS, prereleases=False) == "v1.10.0"
    assert newest_release(TAGS, prereleases=True) == "v2.0.0-rc.1"
    assert newest_release(["nightly"], prereleases=True) is None
    with pytest.raises(UpdateError, match="no stable release"):
        Choice(channel="stable").pick({"nightly": "x"})


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1))
def test_newest_is_the_maximum(versions: list[tuple[int, int, int]]) -> None:
    names = [f"v{a}.{b}.{c}" for a, b, c in versions]
    a, b, c = max(versions)
    assert newest_release(names, prereleases=False) == f"v{a}.{b}.{c}"


@pytest.mark.parametrize(
    ("requires", "release", "expected"),
    [
        (">=3.11", (3, 11, 0), True), (">=3.11", (3, 10, 9), False), (">=3.11,<3.13", (3, 13, 0), False),
        ("~=3.11", (3, 12, 1), True), ("~=3.11.2", (3, 12, 0), False), ("==3.11.*", (3, 11, 7), True),
        ("==3.11", (3, 11, 0), True), ("!=3.12.*", (3, 12, 1), False), ("", (3, 8, 0), True), (">3.11", (3, 11, 1), True),
        ("<=3.11", (3, 11, 0), True), ("<4", (3, 99, 0), True),
    ],
)  # fmt: skip
def test_requires_python(requires: str, release: tuple[int, int, int], expected: bool) -> None:
    assert admits(requires, release) is expected


def test_requires_python_that_makes_no_sense() -> None:
    with pytest.raises(UpdateError, match="not understood"):
        admits("newest", (3, 11, 0))


def test_no_python_fits_names_what_to_install() -> None:
    with pytest.raises(UpdateError, match=r"needs Python >=3\.29") as caught:
        choose(">=3.29", tries=[])
    assert "python3.29" in caught.value.advice


def test_library_folder() -> None:
    python = Interpreter("/usr/bin/python3.12", "3.12.1 (main)", "linux-x86_64", "cpython-312", (3, 12, 1))
    assert python.library == "lib/python3.12/site-packages"
    assert python.short == "3.12.1"


WEB = Build(name="web", command=("make",), inputs=("web", "package.json"), artifact="web/dist")
APP = Build(
    name="app", command=("make", "app"), inputs=("app/*",), artifact="app/release", stamp="app-stamp.json"
)
TREE = [
    Entry("100644", "1" * 40, 1, "web/a.js"),
    Entry("100644", "2" * 40, 1, "app/m.ts"),
    Entry("100644", "3" * 40, 1, "x.py"),
]


def actions(
    artifacts: Collection[str] = (), stamps: Collection[str] = (), current: dict[str, str] | None = None
) -> dict[str, str]:
    found = decide_builds(
        (WEB, APP), TREE,
        artifacts={b.name: b.name in artifacts for b in (WEB, APP)},
        stamps={b.name: b.name in stamps for b in (WEB, APP)},
        current=current or {},
    )  # fmt: skip
    return {d.build.name: d.action for d in found}


def test_builds() -> None:
    same = {b.name: build_inputs(b, TREE) for b in (WEB, APP)}
    assert actions() == {"web": "run", "app": "skip"}
    assert actions(artifacts={"web"}, current=same) == {"web": "reuse", "app": "skip"}
    assert actions(artifacts={"web", "app"}, current=same) == {"web": "reuse", "app": "reuse"}
    assert actions(artifacts={"web", "app"}, current={}) == {"web": "run", "app": "run"}


def test_the_stamp_brings_a_lost_artifact_back() -> None:
    """An install that lost its artifact in an earlier update is rebuilt, not forgotten (#90495)."""
    same = {b.name: build_inputs(b, TREE) for b in (WEB, APP)}
    assert actions(artifacts={"web"}, stamps={"app"}, current=same) == {"web": "reuse", "app": "run"}


def test_only_inputs_decide() -> None:
    other = [*TREE[:2], Entry("100644", "9" * 40, 1, "x.py")]
    assert build_inputs(WEB, TREE) == build_inputs(WEB, other)
    changed = [Entry("100644", "9" * 40, 1, "web/a.js"), *TREE[1:]]
    assert build_inputs(WEB, TREE) != build_inputs(WEB, changed)


def test_room() -> None:
    need = tree_need(
        [Entry("100644", "a", 5000, "new"), Entry("100644", "b", 9000, "old")], {"old": ("100644", "b")}
    )
    assert need.size == int(8192 * 2.1)
    assert admit(need, free=need.size + RESERVE, free_files=1000, total_files=2000) == ""
    assert "MB are free" in admit(need, free=need.size + RESERVE - 1, free_files=1000, total_files=2000)
    assert "takes only" in admit(need, free=1 << 40, free_files=3, total_files=2000)
    assert admit(need, free=1 << 40, free_files=0, total_files=0) == ""
    assert (Need(size=1, files=2) + Need(size=3, files=4)) == Need(size=4, files=6)


def test_deadlines_scale_with_what_was_measured() -> None:
    small = deadlines(state_bytes=0, drains=[], boots=[])
    large = deadlines(state_bytes=8 << 30, drains=[60.0, None], boots=[None, 100.0], builds=[900.0])
    assert small["snapshot"] == 60
    assert large["snapshot"] == 60 + 1024
    assert large["restart"] >= 1800 + 300
    assert large["verify"] == 300
    assert large["prepare"] == small["prepare"] + 900
    assert total(large) > total(small)


def test_a_kept_answer_is_believed_only_for_the_code_that_runs() -> None:
    record = {"at": 1000.0, "state": "behind", "commits": 3, "name": "main", "current": "abc"}
    assert "3 commits on main" in notice_text(record, "abc", "nedura")
    assert notice_text(record, "def", "nedura") == ""
    assert not is_due(record, "abc", 1000.0 + 86_000)
    assert is_due(record, "abc", 1000.0 + 86_401)
    assert is_due(record, "def", 1001.0)


def test_no_answer_is_asked_again_within_the_hour_and_never_means_current() -> None:
    record = {"at": 1000.0, "state": "unknown", "current": "abc"}
    assert not is_due(record, "abc", 1000.0 + 3_000)
    assert is_due(record, "abc", 1000.0 + 3_600)
    assert notice_text(record, "abc", "nedura") == ""
    assert is_due({}, "abc", 0.0)
    assert is_due({**record, "at": 9e9}, "abc", 1000.0), "a clock that was set back must not silence it"
