"""`update --check` on a fork: it asks the fork alone, and says so, since an update looks at the upstream, too."""

from __future__ import annotations

import os

from nedura.testing.installs import Site, git
from nedura.update.source.check import check_for_update


def test_nothing_new_at_a_fork_is_not_called_up_to_date(site: Site) -> None:
    plain = check_for_update(site.home, site.product, dict(os.environ))
    assert (plain.state, plain.reason) == ("current", "")
    upstream = site.origin.clone(site.home.parent / "upstream")
    git(site.checkout, "remote", "add", "upstream", str(upstream))
    told = check_for_update(site.home, site.product, dict(os.environ))
    assert told.state == "current"
    assert f"fork of {upstream}, which was not asked" in told.copy_terminal
    assert "Up to date" not in told.copy_terminal
    git(site.checkout, "remote", "set-url", "upstream", str(site.origin.folder))
    assert check_for_update(site.home, site.product, dict(os.environ)).reason == ""


def test_what_is_new_at_the_fork_is_said_plainly(site: Site) -> None:
    git(site.checkout, "remote", "add", "upstream", str(site.origin.clone(site.home.parent / "upstream")))
    site.origin.commit({"toy/value.py": "VALUE = 2\n"}, "two")
    told = check_for_update(site.home, site.product, dict(os.environ))
    assert (told.state, told.reason) == ("behind", "")
