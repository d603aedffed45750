"""Classes of a failed fetch, by git's own words."""

from __future__ import annotations

import pytest

from nedura.update.source.fetch_failures import classify_fetch

TABLE = [
    ("fatal: unable to access 'https://h.example/': The requested URL returned error: 429", "rate_limited"),
    ("remote: You have exceeded a secondary rate limit", "rate_limited"),
    ("fatal: unable to access 'https://h.example/': The requested URL returned error: 503", "outage"),
    ("error: RPC failed; HTTP 502 curl 22", "outage"),
    ("fatal: unable to access 'https://h.example/': Could not resolve host: h.example", "unreachable"),
    (
        "ssh: connect to host h.example port 22: Connection refused\nfatal: Could not read from remote repository.",
        "unreachable",
    ),
    ("fatal: could not read Username for 'https://h.example': terminal prompts disabled", "login_demanded"),
    ("remote: Invalid credentials\nfatal: Authentication failed for 'https://h.example/'", "auth"),
    ("fatal: unable to access 'https://h.example/': The requested URL returned error: 403", "auth"),
    ("git@h.example: Permission denied (publickey).\nfatal: Could not read from remote repository.", "ssh"),
    ("Host key verification failed.\nfatal: Could not read from remote repository.", "ssh"),
    ("fatal: couldn't find remote ref refs/heads/nope", "missing_ref"),
    ("fatal: '/srv/x' does not appear to be a git repository", "missing_repository"),
    (
        "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
        "missing_repository",
    ),
    ("fatal: transport 'ext' not allowed", "protocol"),
    ("fatal: write error: No space left on device", "disk_full"),
    ("error: cannot lock ref 'refs/nedura/fetched': Unable to create 'x.lock': File exists.", "git_locked"),
    ("error: object abc: hasDotgit: contains '.git'\nfatal: fsck error in packed object", "broken_objects"),
    ("fatal: early EOF\nfatal: index-pack failed", "unreachable"),
    ("something new", "other"),
    ("fatal: '/srv/429/repo' does not appear to be a git repository", "missing_repository"),
    (
        "fatal: unable to access 'https://h.example/rate-limiter.git/': Could not resolve host: h.example",
        "unreachable",
    ),
    ("fatal: couldn't find remote ref refs/heads/fix-429", "missing_ref"),
    ("fatal: '/srv/authentication failed/x' does not appear to be a git repository", "missing_repository"),
    ("fatal: failed to read object f1ad28ed: Permission denied", "permission"),
    ("fatal: Unable to create '/home/a/repo.git/shallow.lock': Permission denied", "permission"),
    ("fatal: Unable to create '/home/a/repo.git/shallow.lock': File exists.", "git_locked"),
    ("error: insufficient permission for adding an object to repository database objects", "permission"),
]


@pytest.mark.parametrize(("words", "token"), TABLE)
def test_classes(words: str, token: str) -> None:
    failure = classify_fetch(words)
    assert failure.token == token
    assert failure.message
    assert failure.advice


def test_a_time_limit_is_its_own_class() -> None:
    assert classify_fetch("anything", timed_out=True).token == "timeout"


@pytest.mark.parametrize(
    ("words", "names", "token"),
    [
        ("ssh: connect to host 429.example port 22: Connection refused", ("429.example",), "unreachable"),
        (
            "fatal: protocol error near too-many-requests/rate-limit.git",
            ("too-many-requests/rate-limit.git",),
            "other",
        ),
        ("fatal: protocol error: it's odd", ("", "it"), "other"),
        ("fatal: it does not appear to be a git repository", ("repository", "a"), "missing_repository"),
    ],
)
def test_what_the_remote_is_called_says_nothing(words: str, names: tuple[str, ...], token: str) -> None:
    assert classify_fetch(words, names=names).token == token
