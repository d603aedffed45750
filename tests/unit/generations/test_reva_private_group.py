"""A group that only its user is in exposes nothing: with it come umask 002 and object folders that git makes again at each commit."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from nedura.update.generation.places import is_exposed, private_group

ME = 4711


def _account(number: int) -> pwd.struct_passwd:
    if number != ME:
        raise KeyError(number)
    return pwd.struct_passwd(("ann", "x", ME, 4712, "", "/home/ann", "/bin/sh"))


def _group(name: str, *members: str) -> grp.struct_group:
    return grp.struct_group((name, "x", 4712, list(members)))


@pytest.mark.parametrize(
    ("group", "private"),
    [
        (_group("ann"), 4712),
        (_group("ann", "ann"), 4712),
        (_group("ann", "bob"), None),
        (_group("users"), None),
    ],
)
def test_a_group_is_private_by_its_name_and_members(group: grp.struct_group, private: int | None) -> None:
    assert private_group(ME, account=_account, group=lambda _: group) == private


def test_root_and_a_user_without_an_account_have_none() -> None:
    assert private_group(0) is None
    assert private_group(ME + 1, account=_account) is None


@pytest.mark.parametrize(
    ("mode", "others", "alone"),
    [(0o755, False, False), (0o775, True, False), (0o777, True, True), (0o757, True, True)],
)
def test_what_only_the_private_group_can_write_is_not_exposed(
    tmp_path: Path, mode: int, others: bool, alone: bool
) -> None:
    tmp_path.chmod(mode)
    info = os.stat(tmp_path)
    assert is_exposed(info, own_group=lambda _: None) == others
    assert is_exposed(info, own_group=lambda _: info.st_gid) == alone
