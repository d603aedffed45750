"""The decision table of certificates (decision 9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nedura.errors import ConfigError
from nedura.trust import Trust, decide_trust

THERE = {"/a.pem", "/s.pem", "/n.pem", "/c.pem", "/r.pem"}
ENV = {"NEDURA_CA_BUNDLE": "/n.pem", "SSL_CERT_FILE": "/c.pem", "REQUESTS_CA_BUNDLE": "/r.pem"}


def decide(**given: Any) -> Trust:
    given.setdefault("environ", {})
    return decide_trust(is_file=THERE.__contains__, **given)


@pytest.mark.parametrize(
    ("given", "source", "path"),
    [
        ({"ca_bundle": "/a.pem", "stored": {"ca_bundle": "/s.pem"}, "environ": ENV}, "argument", "/a.pem"),
        ({"stored": {"ca_bundle": "/s.pem"}, "environ": ENV}, "stored", "/s.pem"),
        ({"environ": ENV}, "NEDURA_CA_BUNDLE", "/n.pem"),
        ({"environ": {k: v for k, v in ENV.items() if k != "NEDURA_CA_BUNDLE"}}, "SSL_CERT_FILE", "/c.pem"),
        ({"environ": {"REQUESTS_CA_BUNDLE": "/r.pem"}}, "REQUESTS_CA_BUNDLE", "/r.pem"),
        ({}, "system", None),
    ],
)
def test_order_of_sources(given: dict[str, Any], source: str, path: str | None) -> None:
    trust = decide(**given)
    assert (trust.source, trust.ca_bundle) == (source, Path(path) if path else None)
    assert not trust.insecure
    assert not trust.warning


def test_insecure_beats_every_bundle() -> None:
    trust = decide(insecure=True, ca_bundle="/a.pem", environ=ENV)
    assert trust.insecure
    assert trust.ca_bundle is None
    assert trust.remember == {"insecure": True, "ca_bundle": None}


def test_stored_insecure_counts_until_an_explicit_no() -> None:
    assert decide(stored={"insecure": True}).insecure
    assert not decide(insecure=False, stored={"insecure": True}).insecure


@pytest.mark.parametrize("value", ["yes", 1, "true", None, {}])
def test_only_a_true_truth_value_switches_verification_off(value: object) -> None:
    assert not decide(stored={"insecure": value}).insecure


def test_environment_can_never_switch_verification_off() -> None:
    names = ("NEDURA_INSECURE", "PYTHONHTTPSVERIFY", "PIP_TRUSTED_HOST", "GIT_SSL_NO_VERIFY", "SSLKEYLOGFILE")
    assert decide(environ=dict.fromkeys(names, "1")) == Trust()


@pytest.mark.parametrize(
    "given",
    [{"ca_bundle": "/gone.pem"}, {"environ": {"NEDURA_CA_BUNDLE": "/gone.pem"}}],
    ids=["flag", "variable"],
)
def test_an_explicit_path_that_is_gone_is_an_error_that_names_it(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        decide(**given)
    assert "/gone.pem" in caught.value.message
    assert "NEDURA_CA_BUNDLE" in caught.value.advice or "--ca-bundle" in caught.value.advice


@pytest.mark.parametrize(
    "given",
    [
        {"stored": {"ca_bundle": "/gone.pem"}},
        {"environ": {"SSL_CERT_FILE": "/gone.pem"}},
        {"environ": {"REQUESTS_CA_BUNDLE": "/gone.pem"}},
    ],
    ids=["stored", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"],
)
def test_a_remembered_or_generic_path_that_is_gone_warns_and_uses_the_system(given: dict[str, Any]) -> None:
    trust = decide(**given)
    assert trust.source == "system"
    assert not trust.insecure
    assert "/gone.pem" in trust.warning


def test_a_gone_stored_path_lets_our_own_variable_speak() -> None:
    trust = decide(stored={"ca_bundle": "/gone.pem"}, environ=ENV)
    assert trust.ca_bundle == Path("/n.pem")
    assert "/gone.pem" in trust.warning


def test_a_variable_is_never_remembered() -> None:
    assert decide(environ=ENV).remember == {"insecure": False, "ca_bundle": None}
    assert decide(ca_bundle="/a.pem").remember == {"insecure": False, "ca_bundle": "/a.pem"}


@pytest.mark.parametrize("stored", [None, [], "x", 7])
def test_a_stored_object_of_the_wrong_kind_is_nothing(stored: Any) -> None:
    assert decide(stored=stored) == Trust()
