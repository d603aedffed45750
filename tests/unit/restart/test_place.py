"""Whose services are meant."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from nedura.fleet.service.place import account_of, real_place

NOBODY_KNOWS = 2_000_000_123


def test_a_user_without_an_entry_in_the_user_database_has_services_too() -> None:
    """Containers run with any number; the whole fleet could not be read there, and an update restarted nobody."""
    with pytest.raises(KeyError):
        pwd.getpwuid(NOBODY_KNOWS)
    account = account_of(NOBODY_KNOWS, {"HOME": "/srv/agent"})
    assert (account.name, account.uid, account.home) == (str(NOBODY_KNOWS), NOBODY_KNOWS, Path("/srv/agent"))
    assert account.group == str(account.gid) == str(os.getegid())
    assert account_of(NOBODY_KNOWS, {}).home == Path("/")


def test_a_known_user_is_the_one_of_the_user_database() -> None:
    entry = pwd.getpwuid(os.geteuid())
    assert account_of(os.geteuid(), {"HOME": "/elsewhere"}).home == Path(entry.pw_dir)
    assert real_place({}).account.name == entry.pw_name
