"""Events of the installer."""

from __future__ import annotations

from typing import ClassVar, final

import attrs

__all__ = ["EVENTS", "InstallStep", "Installed"]


@final
@attrs.frozen(kw_only=True)
class InstallStep:
    """What the installer does now."""

    kind: ClassVar[str] = "install_step"
    label: str

    @property
    def copy(self) -> str:
        """Chat form."""
        return f"Installing: {self.label}."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        return f"  {self.label} ..."


@final
@attrs.frozen(kw_only=True)
class Installed:
    """An install is in place.

    Attributes:
        install_id, generation, code_sha, code_version: what runs.
        home: root home.
        launcher: the command's path.
        existing: it was there before; nothing was built.
    """

    kind: ClassVar[str] = "installed"
    install_id: str
    generation: str
    code_sha: str
    code_version: str
    home: str
    launcher: str
    existing: bool = False

    @property
    def copy(self) -> str:
        """Chat form."""
        return "It is already installed." if self.existing else "It is installed."

    @property
    def copy_terminal(self) -> str:
        """Terminal form."""
        what = f"{self.code_version or 'version unknown'} ({self.code_sha[:8]}), generation {self.generation}"
        if self.existing:
            return f"Already installed in {self.home}: {what}. To move on: {self.launcher} update"
        return f"Installed {what} in {self.home}.\nStart it with: {self.launcher}"


EVENTS = (InstallStep, Installed)
