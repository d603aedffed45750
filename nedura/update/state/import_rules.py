"""What of an archive's config.yaml is trust: who may command this home, and where its tokens are sent (threats.md 7, actor E)."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final

from nedura.config import edit_config, read_config, set_value, unset_value
from nedura.errors import ConfigError

__all__ = ["TRUST_KEYS", "keep_own_trust"]

TRUST_KEYS: Final = ("gateway.operators", "model.base_url")


def keep_own_trust(staged: Path, live: Path) -> str:
    """Give an unpacked config.yaml the live one's values of the keys that are trust.

    Args:
        staged: folder with the unpacked file.
        live: the home that it is for.

    Returns:
        what stayed as it is here; empty when nothing would have changed.

    Raises:
        ConfigError: one of the two cannot be understood, or the key cannot be taken out: then the file must not come in.
    """
    theirs, ours = read_config(staged), read_config(live)
    differing = {key: ours.get(key) for key in TRUST_KEYS if theirs.get(key) not in (None, ours.get(key))}
    if not differing:
        return ""

    def change(content: MutableMapping[str, Any]) -> None:
        for key, value in differing.items():
            if value is None:
                unset_value(content, key)
            else:
                set_value(content, key, value)

    try:
        edit_config(staged, change)
        after = read_config(staged)
    except KeyError:  # a key that comes from a YAML merge cannot be deleted where it is seen
        after = theirs
    if any(after.get(key) != value for key, value in differing.items()):
        raise ConfigError(f"{', '.join(differing)} in it cannot be left out")
    return f"{', '.join(differing)} stayed as it is here; to take it too, say --trust"
