"""Takes up a skin that is edited or chosen elsewhere while the shell runs (facts/runtime.md 7.2: about a second, by the file's stamp)."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from nedura.config import config_path
from nedura.skins import SKIN_NAME, Skin, active_name, find_skin, skin_path

__all__ = ["SkinWatch"]

Stamp = tuple[int, int, int] | None


def _stamp(path: Path) -> Stamp:
    """What changes when a file is written anew, by whatever editor; None without one."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@attrs.define
class SkinWatch:
    """Looks at one home's config and skin file.

    Attributes:
        home: whose.
        name: the skin that the session shows.
        chosen: the session's own choice, which the config does not overrule.
    """

    home: Path
    name: str
    chosen: bool = False
    _config: Stamp = None
    _file: Stamp = None

    def __attrs_post_init__(self) -> None:
        self._config, self._file = _stamp(config_path(self.home)), self._file_stamp()

    def _file_stamp(self) -> Stamp:
        return _stamp(skin_path(self.home, self.name)) if SKIN_NAME.fullmatch(self.name) else None

    def look(self) -> Skin | None:
        """The skin anew when something has changed, else None. Reads files.

        Raises:
            ConfigError: it cannot be used as it is now, half written or gone; asked once for each state of the file.
        """
        config = _stamp(config_path(self.home))
        if config != self._config:
            self._config = config
            wanted = self.name if self.chosen else active_name(self.home)
            if wanted != self.name:
                self.name, self._file = wanted, self._file_stamp()
                return find_skin(self.home, wanted)
        file = self._file_stamp()
        if file == self._file:
            return None
        self._file = self._file_stamp()
        return find_skin(self.home, self.name)
