"""Which certificates a client trusts: one answer for every client there is (decision 9).

Deciding (`decide_trust`) and building (`Trust.context`) are apart: the first is a table over names and the existence of files.
"""

from __future__ import annotations

import functools
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from nedura.errors import ConfigError
from nedura.product import NEDURA, Product
from nedura.text import clean

__all__ = ["Trust", "decide_trust", "resolve_trust"]

GENERIC_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_OPENSSL_FALLBACKS: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)


@attrs.frozen(kw_only=True)
class Trust:
    """What a TLS client believes.

    Attributes:
        insecure: certificates are not checked at all; only an explicit choice leads here.
        ca_bundle: the one bundle to believe; None means the system store.
        source: who said so: `argument`, `stored`, a variable's name, or `system`.
        warning: a line for people when a named bundle was not there; empty otherwise.
        remember: what a store may keep for later refreshes: explicit choices only, never a variable's value.
    """

    insecure: bool = False
    ca_bundle: Path | None = None
    source: str = "system"
    warning: str = ""
    remember: Mapping[str, Any] = attrs.field(factory=dict, eq=False)

    def context(self) -> ssl.SSLContext:
        """The TLS context, built once for each state of the files. Reads for up to 60 ms: async code calls it in a thread.

        `SSLKEYLOGFILE` has no effect: only `ssl.create_default_context` obeys it, and that is not used here.

        Raises:
            ConfigError: the bundle cannot be read or holds no certificate.
        """
        return _build(self.insecure, self.ca_bundle, self.source, _stamp(self.ca_bundle))


def _stamp(bundle: Path | None) -> tuple[object, ...]:
    """What must be unchanged for a context to be used again: the bundle's file, or the system's and an hour of time."""
    path = (
        str(bundle)
        if bundle
        else os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile
    )
    try:
        info = os.stat(path)
    except OSError:
        return (path, int(time.monotonic() // 3600))
    return (path, info.st_ino, info.st_mtime_ns, info.st_size, 0 if bundle else int(time.monotonic() // 3600))


@functools.lru_cache(maxsize=8)
def _build(insecure: bool, bundle: Path | None, source: str, stamp: tuple[object, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if bundle is None:
        return _system_context(context)
    try:
        context.load_verify_locations(cafile=str(bundle))
    except ssl.SSLError as error:
        raise ConfigError(
            f"{clean(bundle)} holds no certificate that can be read.", advice=_advice(source)
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{clean(bundle)} cannot be read: {error.strerror}.", advice=_advice(source)
        ) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a company's own intermediate may be the anchor
    return context


def _advice(source: str) -> str:
    where = "It was named by --ca-bundle" if source == "argument" else f"It was named by {source}"
    return f"{where}: give a PEM file with your CA's certificate."


def _system_context(context: ssl.SSLContext) -> ssl.SSLContext:
    """The system store. Where it is files it is read once here: truststore reads it again in each handshake, on the loop."""
    if sys.platform in ("darwin", "win32"):
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    named = os.environ.get(paths.openssl_cafile_env)
    candidates = [named] if named and os.path.isfile(named) else [paths.openssl_cafile, *_OPENSSL_FALLBACKS]
    found = next((path for path in candidates if os.path.isfile(path)), None)
    if found is None:
        context.set_default_verify_paths()  # hashed folders only
    else:
        context.load_verify_locations(cafile=found, capath=paths.capath)  # lets other threads run meanwhile
    return context


def decide_trust(
    *,
    insecure: bool | None = None,
    ca_bundle: str | None = None,
    stored: Mapping[str, Any] | None = None,
    environ: Mapping[str, str],
    is_file: Callable[[str], bool],
    product: Product = NEDURA,
) -> Trust:
    """Pick by the table of decision 9: insecure, argument, stored, NEDURA_CA_BUNDLE, SSL_CERT_FILE, REQUESTS_CA_BUNDLE, system.

    Args:
        insecure: explicit choice; None asks the stored one.
        ca_bundle: explicit path.
        stored: the `tls` object of an account.
        environ: the real environment (decision 53).
        is_file: whether a path is a file there.
        product: whose variable prefix counts.

    Raises:
        ConfigError: a path given by argument or our own variable is not there.
    """
    stored = stored if isinstance(stored, Mapping) else {}
    if insecure or (insecure is None and stored.get("insecure") is True):
        source = "argument" if insecure else "stored"
        return Trust(insecure=True, source=source, remember={"insecure": True, "ca_bundle": None})
    kept = stored.get("ca_bundle")
    ours = product.env("CA_BUNDLE")
    candidates = [
        ("argument", (ca_bundle or "").strip()),
        ("stored", kept.strip() if isinstance(kept, str) else ""),
        (ours, environ.get(ours, "").strip()),
        *((name, environ.get(name, "").strip()) for name in GENERIC_VARIABLES),
    ]
    warning = ""
    for source, path in candidates:
        if not path:
            continue
        path = os.path.expanduser(path)
        if is_file(path):
            keep = str(path) if source in ("argument", "stored") else None
            return Trust(
                ca_bundle=Path(path),
                source=source,
                warning=warning,
                remember={"insecure": False, "ca_bundle": keep},
            )
        if source in ("argument", ours):
            raise ConfigError(f"{clean(path)} is not a file.", advice=_advice(source))
        shown = "The saved certificate file" if source == "stored" else f"The file of {source}"
        warning = warning or f"{shown} is not there ({clean(path)}); the system's certificates are used."
    return Trust(warning=warning, remember={"insecure": False, "ca_bundle": None})


def resolve_trust(
    *,
    insecure: bool | None = None,
    ca_bundle: str | None = None,
    stored: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    product: Product = NEDURA,
) -> Trust:
    """`decide_trust` for this machine. Nothing is read yet; `Trust.context` does.

    Raises:
        ConfigError: as `decide_trust`.
    """
    named = (ca_bundle or "").strip()
    return decide_trust(
        insecure=insecure,
        # what is stored must mean the same file from every working folder
        ca_bundle=os.path.abspath(os.path.expanduser(named)) if named else None,
        stored=stored,
        environ=os.environ if environ is None else environ,
        is_file=os.path.isfile,
        product=product,
    )
