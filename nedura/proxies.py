"""Proxies as the environment names them. No IO."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["matches_host", "proxies_from"]


def proxies_from(environ: Mapping[str, str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Proxies of the environment: scheme -> proxy URL, and the hosts that go without.

    Lower case wins over upper case; HTTP_PROXY in capitals is ignored under CGI, where a request could set it.
    """
    found: dict[str, str] = {}
    for scheme in ("http", "https", "all"):
        value = environ.get(f"{scheme}_proxy", "").strip()
        if not value and not (scheme == "http" and "REQUEST_METHOD" in environ):
            value = environ.get(f"{scheme.upper()}_PROXY", "").strip()
        if value:
            found[scheme] = value if "://" in value else f"http://{value}"
    without = environ.get("no_proxy", "") or environ.get("NO_PROXY", "")
    return found, tuple(host.strip().lower() for host in without.split(",") if host.strip())


def matches_host(host: str, port: int | None, entry: str) -> bool:
    """Whether a host falls under one entry of NO_PROXY: `*`, a name with its subdomains, and a port when one is named."""
    name, _, named_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    if named_port and named_port != str(port or 443):
        return False
    name = name.removeprefix("*").removeprefix(".")
    return entry == "*" or host == name or (bool(name) and host.endswith(f".{name}"))
