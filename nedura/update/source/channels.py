"""Channels: which line of versions an install follows (facts/update.md 1.1). The choice is pure.

`--branch` beats `--channel`, that beats the install's own setting in config.yaml, that beats the branch pinned at install.
`stable` and `canary` are published releases (tags), `main` is the tip of the branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from nedura.errors import RefusedError, UpdateError, UsageError
from nedura.product import Product
from nedura.text import clean

__all__ = [
    "CHANNELS",
    "Choice",
    "adopt_channel",
    "channel_key",
    "check_followed",
    "choose_channel",
    "newest_release",
    "set_channel",
    "successor",
    "version_key",
]

CHANNELS: Final = ("stable", "canary", "main")
_RELEASE: Final = re.compile(
    r"^v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-.]?(a|b|rc|alpha|beta|canary|dev)[-.]?(\d+)?)?\Z"
)
_STAGE: Final = {"dev": 0, "canary": 1, "a": 2, "alpha": 2, "b": 3, "beta": 3, "rc": 4}


@attrs.frozen(kw_only=True)
class Choice:
    """What to follow.

    Attributes:
        branch: branch of the remote; empty for a channel of releases.
        channel: `stable` or `canary`, else empty.
        source: what decided: option, config, install.
    """

    branch: str = ""
    channel: str = ""
    source: str = "install"

    def pick(self, tags: Mapping[str, str]) -> str:
        """The newest release of the channel among the remote's tags.

        Raises:
            UpdateError: there is none.
        """
        name = newest_release(tags, prereleases=self.channel == "canary")
        if name is None:
            raise UpdateError(
                f"The remote has published no {self.channel or 'stable'} release.",
                stop_class="channel",
                advice="Follow a branch instead: --branch main.",
            )
        return name

    @property
    def name(self) -> str:
        """For people."""
        return self.branch or f"channel {self.channel}"


def channel_key(install_id: str) -> str:
    """Dotted key of the install's channel in the root home's config.yaml."""
    return f"update.installs.{install_id}.channel"


def version_key(name: str) -> tuple[int, int, int, int, int] | None:
    """What versions are ordered by; None for a name that is no version."""
    found = _RELEASE.match(name)
    if found is None:
        return None
    stage = _STAGE[found[4]] if found[4] else 9
    return int(found[1]), int(found[2]), int(found[3] or 0), stage, int(found[5] or 0)


def newest_release(tags: Iterable[str], *, prereleases: bool) -> str | None:
    """The tag with the highest version; None when no tag is a version."""
    found = [(version, name) for name in tags if (version := version_key(name)) is not None]
    wanted = [(version, name) for version, name in found if prereleases or version[3] == 9]
    return max(wanted)[1] if wanted else None


def check_channel(name: str) -> str:
    """A channel's name.

    Raises:
        UsageError: there is no such channel.
    """
    if name not in CHANNELS:
        raise UsageError(f"There is no channel {clean(name, 40)!r}. Channels: {', '.join(CHANNELS)}.")
    return name


def check_followed(layout: str, branch: str | None, channel: str | None) -> None:
    """Refuse a choice that an install of this layout does not have.

    Raises:
        UsageError: an unpacked release was told to follow a branch or channel.
    """
    if layout == "zip" and (branch not in (None, "main") or channel not in (None, "main", "stable")):
        raise UsageError(
            "An unpacked release follows its address; it has no branches or channels.",
            advice="For those, install from a checkout: ./run install",
        )


def set_channel(root_home: Path, name: str, product: Product, environ: Mapping[str, str]) -> str:
    """Keep a channel for this install in the root home's config.yaml; returns the install's id.

    Raises:
        UsageError: there is no such channel, or no install.
        RefusedError: somebody else updates this install.
        ConfigError: the file cannot be read or written.
    """
    from nedura.config import edit_config, set_value
    from nedura.update.notice import forget_check
    from nedura.update.planning.admission import find_subject, refusal_of

    check_channel(name)
    subject = find_subject(root_home, product, environ)
    install = subject.install
    if refusal := refusal_of(subject.kind):
        raise RefusedError(refusal.message, advice=refusal.advice)
    if install is None:
        raise UsageError("There is no install here whose channel could be set.")
    if subject.layout == "zip":
        raise UsageError("An unpacked release follows its address; it has no channels.")
    key = channel_key(install.install_id)
    edit_config(root_home, lambda data: set_value(data, key, name))
    forget_check(root_home)
    return install.install_id


def successor(name: str, retired: Iterable[tuple[str, str]]) -> str:
    """The channel that stands for a name now: the name itself unless it was retired, however many times.

    Args:
        name: channel as it was chosen or kept.
        retired: (retired, successor) pairs of the product.
    """
    pairs = dict(retired)
    for _ in range(len(pairs)):
        name = pairs.get(name, name)
    return name


def adopt_channel(root_home: Path, install_id: str, original: str, destination: str) -> bool:
    """Keep the successor of a retired channel for an install; False when it follows something else meanwhile.

    Raises:
        UsageError: there is no such channel.
        ConfigError: the file cannot be read or written.
    """
    from nedura.config import edit_config, read_config, set_value

    check_channel(destination)
    key = channel_key(install_id)
    if read_config(root_home).get(key) != original:
        return False
    edit_config(root_home, lambda data: set_value(data, key, destination))
    return True


def choose_channel(
    *,
    branch: str | None,
    channel: str | None,
    configured: str,
    pinned_branch: str,
    retired: Iterable[tuple[str, str]] = (),
) -> Choice:
    """What to follow, by the order of precedence.

    Args:
        branch: `--branch`.
        channel: `--channel`.
        configured: the install's setting, empty for none.
        pinned_branch: branch recorded at install, empty when the source was on a release tag.
        retired: (retired, successor) pairs of the product.

    Raises:
        UsageError: an unknown channel.
    """
    if branch is not None:
        if (
            not branch.strip()
        ):  # an unset variable of a script must not mean another branch than its author thought
            raise UsageError("--branch names no branch.", advice="Leave it out to follow the usual one.")
        return Choice(branch=branch, source="option")
    named, source = (channel, "option") if channel else (configured, "config")
    if named:
        named = successor(named, retired)
        check_channel(named)
        if named == "main":
            return Choice(branch=pinned_branch or "main", source=source)
        return Choice(channel=named, source=source)
    return Choice(branch=pinned_branch) if pinned_branch else Choice(channel="stable")
