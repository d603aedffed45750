"""`nedura profile ...`"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nedura.homes import process_home, root_home
from nedura.profiles import Profile, create_profile, list_profiles, stray_profiles
from nedura_cli.output import Output
from nedura_cli.tables import table

__all__ = ["create", "list"]


def _root() -> Path:
    return root_home(process_home())


def _record(profile: Profile) -> dict[str, object]:
    return {"name": profile.name, "home": str(profile.home), "sticky": profile.sticky}


def list(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Print every profile of the root."""
    root, home = _root(), process_home()
    profiles, strays = list_profiles(root), stray_profiles(root)
    output.record(
        {
            "kind": "profiles",
            "profiles": [{**_record(profile), "active": profile.home == home} for profile in profiles],
            "strays": [{"name": stray.name, "reason": stray.reason} for stray in strays],
        }
    )
    rows: Sequence[Sequence[str]] = [
        (
            "*" if profile.home == home else "",
            profile.name,
            "sticky" if profile.sticky else "",
            str(profile.home),
        )
        for profile in profiles
    ]
    for line in table(("", "profile", "", "home"), rows):
        output.line(line)
    for stray in strays:
        output.remark(f"not a profile: {stray.name} ({stray.reason})")
    return 0


def create(args: argparse.Namespace, output: Output) -> int:
    """Make a profile."""
    profile = create_profile(_root(), args.name, model_from=process_home())
    output.record({"kind": "profile_created", **_record(profile)})
    output.line(f"Made {profile.name} in {profile.home}. Use it with: nedura -p {profile.name} COMMAND")
    return 0
