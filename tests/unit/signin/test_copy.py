"""What no chat may be sent."""

from __future__ import annotations

import pytest

from nedura.errors import PortalError
from nedura.signin.copy import chat_safe
from nedura.signin.failures import failure_of
from nedura.signin.tokens import finite


@pytest.mark.parametrize(
    "text",
    [
        "go to //evil.example now",
        "//evil.example",
        "write to mailto:a@b.example",
        "run `nedura`",
        "\uff47\uff55\uff45\uff53\uff54",
        "https\uff1a//evil.example",
    ],
)
def test_hidden_addresses_commands_and_words_are_left_out(text: str) -> None:
    assert chat_safe(text) == ""


@pytest.mark.parametrize("text", ["These connected apps came along: Gmail.", "Please reconnect: A/B test."])
def test_plain_lines_stay(text: str) -> None:
    assert chat_safe(text) == text


def test_a_wait_of_a_year_is_told_as_a_day() -> None:
    failed = failure_of(PortalError("no", status=429, retry_after=31536000.0))
    assert failed.retry_after == 86400


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), True, "1", None])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert finite(value) is None
