"""How a member is started again by us: its command line and its environment. No IO.

Another process's own argv or environment is compared, never executed (threats.md 4): a successor is our launcher, a parsed verb and
typed options, in an environment that holds what the machine gives every program and our own settings, and nothing of another profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nedura.fleet.model import Runtime
from nedura.homes import DEFAULT_PROFILE, profile_name, root_home
from nedura.product import NEDURA, Product

__all__ = ["launcher_of", "successor_argv", "successor_environment"]

_MACHINE: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "DBUS_SESSION_BUS_ADDRESS", "SYSTEMROOT", "LD_LIBRARY_PATH",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
})  # fmt: skip
_MACHINE_PREFIXES: Final = ("LC_", "XDG_")
_OF_ONE_PROCESS: Final = ("SUPERVISED_CHILD", "GATEWAY_DETACHED", "DESKTOP_MANAGED", "SESSION", "UPDATE_")
_SECRET_WORDS: Final = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL")


def launcher_of(home: Path, product: Product = NEDURA) -> Path:
    """The launcher of the install that serves a home; it may not exist in a checkout layout."""
    return root_home(home) / "bin" / product.command


def successor_argv(
    runtime: Runtime,
    *,
    launcher: Path | None,
    interpreter: str,
    flags: Sequence[str] = (),
    product: Product = NEDURA,
) -> tuple[str, ...]:
    """Command line that starts a member again.

    Args:
        runtime: the member as it was.
        launcher: the install's launcher, None where there is none (checkout layout).
        interpreter: absolute path of the Python that runs the command then.
        flags: flags of `gateway run` that it keeps, as `nedura.fleet.gateway_flags` reads them.
        product: names.
    """
    program = (str(launcher),) if launcher else (interpreter, "-P", "-B", "-m", product.main_modules[0])
    name = profile_name(runtime.home)
    profile = ("-p", name) if name not in (DEFAULT_PROFILE, "custom") else ()
    if runtime.kind == "gateway":
        return (*program, *profile, "gateway", "run", *flags)
    return (*program, *profile, runtime.kind, *_address(runtime.detail))


def _address(detail: Mapping[str, object]) -> tuple[str, ...]:
    """`--host` and `--port` as far as they are what they should be."""
    host, port = detail.get("host"), detail.get("port")
    flags: tuple[str, ...] = ()
    if isinstance(host, str) and host and all(char.isalnum() or char in ".:-_" for char in host):
        flags += ("--host", host)
    if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536:
        flags += ("--port", str(port))
    return flags


def successor_environment(
    environ: Mapping[str, str], home: Path, product: Product = NEDURA
) -> dict[str, str]:
    """Environment of a successor: the machine's variables, our settings, and the home it serves.

    Args:
        environ: of the process that restarts it. Marks of that process and secrets stay behind.
        home: the member's home.
        product: names.
    """
    prefix = product.env_prefix + "_"

    def ours(name: str) -> bool:
        rest = name.removeprefix(prefix)
        return (
            name.startswith(prefix)
            and not rest.startswith(_OF_ONE_PROCESS)
            and not any(word in rest for word in _SECRET_WORDS)
        )

    kept = {
        name: value
        for name, value in environ.items()
        if name in _MACHINE or name.startswith(_MACHINE_PREFIXES) or ours(name)
    }
    kept.pop("XDG_SESSION_ID", None)
    return {**kept, product.env("HOME"): str(home)}
