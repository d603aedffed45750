"""Every name a host application may change, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

__all__ = ["NEDURA", "Build", "Product"]


@attrs.frozen(kw_only=True)
class Build:
    """A declared build step of the tree (web page, desktop app).

    Attributes:
        name: short id, used in receipts.
        command: argv run in the tree; `{python}` is replaced by the generation's interpreter.
        inputs: paths or globs in the tree whose content decides whether the artifact is current.
        artifact: path in the tree that must exist afterwards: a file or a folder of files, with links that stay inside it.
        stamp: file under the root home that says "this install has it", empty for builds every install gets.
        timeout: seconds.
    """

    name: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    artifact: str
    stamp: str = ""
    timeout: float = 900.0


@attrs.frozen(kw_only=True)
class Product:
    """Names and places of one product built on nedura. The defaults are nedura's own.

    Attributes:
        name: product name as people read it.
        command: command on PATH, also the launcher's file name.
        env_prefix: prefix of its environment variables, without underscore.
        home_folder: folder name of the native home under the user's home.
        main_modules: modules that a process started with `-m` runs as the command.
        gateway_commands: basenames that start a gateway by themselves.
        gateway_scripts: script path endings that start a gateway by themselves.
        unit_families: systemd unit base names that may be ours, the one we install first.
        label_families: launchd labels that may be ours, the one we install first.
        roots: folders of the tree that go on `sys.path`, relative to it.
        bootstrap: the stdlib-only completion bootstrap in the tree, relative to it.
        lock_file: hash-checked requirements file in the tree; the environment's only input.
        environment: `managed` (we build environments) or `none` (the host does).
        launch_modules: entry points whose import closure must load before a commit.
        builds: declared build steps.
        retired_channels: (retired, successor) pairs: who follows the first is moved to the second.
        portal_url, inference_url, welcome_url: the service's addresses.
        client_id, scope: OAuth client of the device login.
        settle_seconds: how long a restarted member must keep serving before it counts; the others wait for the first of a sealed install.
        user_agent: product token of HTTP requests.
    """

    name: str = "nedura"
    command: str = "nedura"
    env_prefix: str = "NEDURA"
    home_folder: str = ".nedura"
    main_modules: tuple[str, ...] = ("nedura_cli.main", "nedura_cli")
    gateway_modules: tuple[str, ...] = ("nedura_gateway.main", "nedura_gateway")
    gateway_commands: tuple[str, ...] = ("nedura-gateway",)
    gateway_scripts: tuple[str, ...] = ("nedura_gateway/run.py", "gateway/run.py")
    unit_families: tuple[str, ...] = ("nedura-gateway", "hermes-gateway")
    label_families: tuple[str, ...] = ("ai.nedura.gateway", "ai.hermes.gateway")
    roots: tuple[str, ...] = ("", "renderers/cli", "renderers/gateway")
    bootstrap: str = "nedura/update/bootstrap.py"
    lock_file: str = "requirements.lock"
    environment: Literal["managed", "none"] = "managed"
    launch_modules: tuple[str, ...] = (
        "nedura_cli.main",
        "nedura_gateway.main",
        "nedura.update.completion.second_half",
    )
    builds: tuple[Build, ...] = ()
    retired_channels: tuple[tuple[str, str], ...] = ()
    portal_url: str = "https://portal.nousresearch.com"
    inference_url: str = "https://inference-api.nousresearch.com/v1"
    welcome_url: str = "https://welcome-api.nousresearch.com/v1"
    client_id: str = "hermes-cli"
    scope: str = "inference:invoke"
    settle_seconds: float = 12.0
    user_agent: str = "nedura"

    def env(self, name: str) -> str:
        """Full name of an environment variable: `env("HOME")` is `NEDURA_HOME`."""
        return f"{self.env_prefix}_{name}"

    def setting(self, environ: Mapping[str, str], name: str) -> str:
        """Value of one of our variables, stripped; empty when unset."""
        return environ.get(self.env(name), "").strip()


NEDURA: Final = Product()
"""The product that this distribution is."""
