"""Which remote addresses are accepted (threats.md 1)."""

from __future__ import annotations

import pytest

from nedura.errors import RefusedError
from nedura.update.source.urls import parse_remote

GOOD = [
    ("https://host.example/owner/repo.git", "https", "https://host.example/owner/repo.git"),
    ("https://host.example:8443/owner/repo", "https", "https://host.example:8443/owner/repo"),
    ("https://user@host.example/owner/repo", "https", "https://host.example/owner/repo"),
    ("https://user:needle@host.example/owner/repo", "https", "https://host.example/owner/repo"),
    ("https://[::1]:8443/owner/repo", "https", "https://[::1]:8443/owner/repo"),
    ("ssh://git@host.example/owner/repo", "ssh", "ssh://host.example/owner/repo"),
    ("ssh://git@host.example:2222/owner/repo", "ssh", "ssh://host.example:2222/owner/repo"),
    ("git@host.example:owner/repo.git", "ssh", "host.example:owner/repo.git"),
    ("host.example:owner/repo.git", "ssh", "host.example:owner/repo.git"),
    ("/srv/git/repo", "file", "/srv/git/repo"),
    ("/srv/git/with blank:and colon", "file", "/srv/git/with blank:and colon"),
    ("file:///srv/git/repo", "file", "/srv/git/repo"),
    ("file:///srv/my git/größe", "file", "/srv/my git/größe"),
]

BAD = [
    "", "ext::sh -c touch% /tmp/x", "ext::sh", "fd::17", "git://host.example/repo", "http://host.example/repo",
    "ftp://host.example/repo", "rsync://host.example/repo", "file://host.example/srv/repo", "-oProxyCommand=x:repo",
    "ssh://-oProxyCommand=touch/repo", "git@-oProxyCommand=x:repo", "git@host.example:-oProxyCommand=x",
    "https://host.example/-upload-pack", "https://host.example", "https://host.example/", "https://-host/owner/repo",
    "https://host.example/owner/repo?x=1", "https://host.example/owner/repo#x", "https://ho st.example/repo",
    "https://host.example\\@evil.example/repo", "ssh://-user@host.example/repo", "https://host.example:99999/repo",
    "repo", "../repo", "host.example::repo", "/srv/../etc/repo", "/srv/git/re\npo", "https://host.example/o\x00r",
    "x" * 3000,
]  # fmt: skip


@pytest.mark.parametrize(("url", "protocol", "shown"), GOOD)
def test_accepted(url: str, protocol: str, shown: str) -> None:
    remote = parse_remote(url)
    assert (remote.protocol, remote.shown) == (protocol, shown)
    assert "needle" not in repr(remote)


@pytest.mark.parametrize("url", BAD)
def test_refused(url: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_remote(url)
    assert "needle" not in caught.value.message


@pytest.mark.parametrize("url", ["/srv/git/repo", "file:///srv/git/repo"])
def test_a_local_path_only_where_it_was_recorded(url: str) -> None:
    with pytest.raises(RefusedError):
        parse_remote(url, local=False)


def test_the_refusal_shows_no_credential() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_remote("git://user:needle@host.example/repo")
    assert "needle" not in caught.value.diagnostics()


def test_same_place() -> None:
    a, b = parse_remote("https://user:x@Host.example/o/r.git"), parse_remote("git@host.example:o/r")
    assert a.same_place(b)
    assert not a.same_place(parse_remote("https://host.example/o/other"))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://u:pa@sec@host/x",
        "https://u:pa/sec@host/x",
        "https://u:pa#sec@host/x",
        "u:sec@host:path",
        "ext::u:sec@host",
    ],
)
def test_no_odd_spelling_shows_a_credential(url: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_remote(url)
    assert "sec" not in caught.value.diagnostics()
