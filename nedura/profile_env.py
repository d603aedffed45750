"""A profile's own environment: its `.env`, and what a child that works for it gets (C156).

Nothing here ever changes `os.environ`: a process that serves several profiles hands each child the environment of that child's home.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nedura.errors import ConfigError, RecordMissing
from nedura.homes import HOME_VARIABLE
from nedura.product import NEDURA, Product
from nedura.programs import child_environment
from nedura.records import read_bytes

__all__ = ["TRUSTED", "env_file", "parse_env", "profile_environment", "read_env"]

MAX_FILE: Final = 256 * 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

TRUSTED: Final = re.compile(
    r"(?:[A-Z]+_PROXY|[a-z]+_proxy|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
    r"|SSLKEYLOGFILE|PATH|HOME|LD_.*|DYLD_.*|PYTHON.*|PIP_.*|UV_.*|GIT_.*|NOUS_.*_URL|.*_SHARED_AUTH_DIR"
    r"|[A-Z]+_(?:HOME|CA_BUNDLE|PORTAL_BASE_URL|INFERENCE_BASE_URL|SUPERVISED_CHILD|EXTERNAL_SUPERVISOR))"
)
"""Names that decide whom we trust or what runs: from the real environment or the root config, never from a `.env` (decision 53)."""


def env_file(home: Path) -> Path:
    """Where a profile keeps its secrets."""
    return home / ".env"


def parse_env(text: str) -> dict[str, str]:
    """`NAME=value` lines: comments and `export` are taken, quotes are removed, nothing is expanded."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _NAME.fullmatch(name) or "\0" in value:
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        found[name] = value
    return found


def read_env(home: Path) -> dict[str, str]:
    """The variables of a profile, without those that may not come from there.

    Raises:
        ConfigError: the file is no text.
        StoreError: it cannot be read.
    """
    try:
        data = read_bytes(env_file(home), MAX_FILE)
    except RecordMissing:
        return {}
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(".env is no UTF-8 text.") from error
    return {name: value for name, value in parse_env(text).items() if not TRUSTED.fullmatch(name)}


def profile_environment(
    home: Path, environ: Mapping[str, str] | None = None, *, product: Product = NEDURA
) -> dict[str, str]:
    """The environment of a child that works for a profile: what every child may inherit, the profile's own variables, and its home.

    Args:
        home: the profile's home.
        environ: where the inheritable part comes from; default the process's own. Secrets in it are never passed on.
        product: names; its variables for portal, CA and the like are inherited too.

    Raises:
        ConfigError, StoreError: as `read_env`.
    """
    environ = os.environ if environ is None else environ
    own = [name for name in environ if name.startswith(f"{product.env_prefix}_") and TRUSTED.fullmatch(name)]
    keep = ("TERM", "COLORTERM", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", *own)
    inherited = child_environment(environ, keep=keep)
    for name in (product.env("SUPERVISED_CHILD"), product.env("EXTERNAL_SUPERVISOR")):
        inherited.pop(name, None)
    variable = product.env("HOME") if product.env_prefix else HOME_VARIABLE
    return {**read_env(home), **inherited, variable: str(home)}
