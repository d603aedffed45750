"""`nedura profile ...`"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nedura.commands import GROUPS, build_parser, each_parser
from nedura.errors import NeduraError, RefusedError
from nedura.homes import DEFAULT_PROFILE, process_home, profile_name, root_home
from nedura.profile_archive import default_target, export_profile, import_profile
from nedura.profile_card import edit_card, read_card
from nedura.profile_change import delete_profile, rename_profile, use_profile
from nedura.profiles import Profile, create_profile, find_profile, list_profiles, stray_profiles
from nedura.text import clean, counted
from nedura.wrappers import Wrapper, find_wrappers, make_wrapper, remove_wrapper
from nedura_cli.output import Output
from nedura_cli.profile_facts import facts_of
from nedura_cli.tables import table

__all__ = ["alias", "create", "delete", "describe", "export", "import_", "list", "rename", "show", "use"]


def _root() -> Path:
    return root_home(process_home())


def _launcher() -> Path:
    root = _root()
    launcher = root / "bin" / "nedura"
    if launcher.exists():
        return launcher
    import shutil

    found = shutil.which("nedura")
    if found is None:
        raise RefusedError(
            "There is no nedura command that a wrapper could run.", advice="Run: ./run install"
        )
    return Path(found)


def _reserved() -> frozenset[str]:
    """Names of our own commands: a wrapper of that name would hide them from nobody but confuse everybody."""
    return frozenset({"nedura", *GROUPS, *(path[0] for path, _ in each_parser(build_parser()) if path)})


def _record(profile: Profile) -> dict[str, Any]:
    card = read_card(profile.home)
    return {
        "name": profile.name,
        "home": str(profile.home),
        "sticky": profile.sticky,
        "display_name": card.display_name,
        "description": card.description,
    }


def list(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Print every profile of the root."""
    root, home = _root(), process_home()
    profiles, strays = list_profiles(root), stray_profiles(root)
    records = [{**_record(profile), "active": profile.home == home} for profile in profiles]
    output.record(
        {
            "kind": "profiles",
            "profiles": records,
            "strays": [{"name": stray.name, "reason": stray.reason} for stray in strays],
        }
    )
    rows: Sequence[Sequence[str]] = [
        (
            "*" if record["active"] else "",
            str(record["display_name"] or record["name"]),
            "sticky" if record["sticky"] else "",
            str(record["home"]),
            str(record["description"]),
        )
        for record in records
    ]
    output.table(("", "profile", "", "home", "about"), rows)
    for stray in strays:
        output.remark(f"not a profile: {stray.name} ({stray.reason})")
    return 0


def create(args: argparse.Namespace, output: Output) -> int:
    """Make a profile, and a command of its own unless that is impossible or unwanted."""
    root, home = _root(), process_home()
    cloning = args.clone or args.clone_all or bool(args.clone_from)
    source = args.clone_from or (profile_name(home, root) if cloning else "")
    profile = create_profile(
        root,
        args.name,
        model_from=home,
        clone=source,
        everything=args.clone_all,
        channels=args.clone_channels,
        skills=not args.no_skills,
        description=args.description,
    )
    wrapper = None if args.no_alias else _try_wrapper(profile, output)
    output.record(
        {"kind": "profile_created", **_record(profile), "alias": wrapper.alias if wrapper else None}
    )
    start = wrapper.alias if wrapper else f"nedura -p {profile.name}"
    output.line(f"Made {profile.name} in {profile.home}. Use it with: {start}")
    return 0


def _try_wrapper(profile: Profile, output: Output) -> Wrapper | None:
    """A profile is made whether or not a command of its own is possible; why not is said."""
    try:
        return make_wrapper(profile.name, profile.name, _launcher(), reserved=_reserved())
    except NeduraError as error:
        output.remark(f"No command of its own: {error.diagnostics()}")
        return None


def use(args: argparse.Namespace, output: Output) -> int:
    """Make a profile sticky."""
    profile = use_profile(_root(), args.name)
    output.record({"kind": "profile_used", **_record(profile)})
    output.line(f"Commands without -p use {profile.name} now.")
    return 0


def show(args: argparse.Namespace, output: Output) -> int:
    """Show one profile."""
    profile = find_profile(_root(), args.name or profile_name(process_home(), _root()))
    facts = facts_of(profile)
    wrappers = [wrapper.alias for wrapper in find_wrappers() if wrapper.profile == profile.name]
    record = {**_record(profile), **facts, "commands": wrappers}
    output.record({"kind": "profile", **record})
    for line in table(("", ""), [(key.replace("_", " "), _shown(value)) for key, value in record.items()]):
        if line:
            output.line(line)
    return 0


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case [*items]:
            return ", ".join(map(str, items)) or "none"
        case _:
            return str(value) if value not in ("", None) else "none"


def describe(args: argparse.Namespace, output: Output) -> int:
    """Save one line about a profile."""
    profile = find_profile(_root(), args.name)
    card = edit_card(profile.home, description=args.text)
    output.record({"kind": "profile_described", **_record(profile)})
    output.line(f"{profile.name}: {card.description or 'no description'}")
    return 0


def rename(args: argparse.Namespace, output: Output) -> int:
    """Rename a profile."""
    profile = asyncio.run(rename_profile(_root(), args.name, args.to))
    output.record({"kind": "profile_renamed", **_record(profile)})
    if profile.name == DEFAULT_PROFILE:
        output.line(
            f"The default profile is shown as {read_card(profile.home).display_name or 'default'} now."
        )
    else:
        output.line(f"It is {profile.name} now, in {profile.home}.")
        output.remark(
            "Its gateway was stopped and its service removed, if it had them. "
            f"Install it again with: nedura -p {profile.name} gateway install"
        )
    return 0


def delete(args: argparse.Namespace, output: Output) -> int:
    """Delete a profile after its name was typed."""
    profile = find_profile(_root(), args.name, half_deleted=True)
    if not args.yes:
        _confirm(profile, output)
    asyncio.run(delete_profile(_root(), profile.name))
    output.record({"kind": "profile_deleted", "name": profile.name, "home": str(profile.home)})
    output.line(f"Deleted {profile.name}.")
    return 0


def _confirm(profile: Profile, output: Output) -> None:
    if output.as_json or not sys.stdin.isatty():
        raise RefusedError(
            "Deleting asks for the profile's name.", advice="Add --yes to delete without asking."
        )
    output.remark(f"This deletes {profile.home} with everything in it: config, memory, sessions, sign-in.")
    if input(f"Type {profile.name} to go on: ").strip() != profile.name:
        raise RefusedError("Nothing was deleted.")


def alias(args: argparse.Namespace, output: Output) -> int:
    """Make or remove a command of a profile's own."""
    profile = find_profile(_root(), args.name)
    name = args.alias or profile.name
    if args.remove:
        gone = [
            wrapper.alias
            for wrapper in find_wrappers()
            if wrapper.profile == profile.name
            and args.alias in (None, wrapper.alias)
            and remove_wrapper(wrapper)
        ]
        if not gone:
            raise NeduraError(f"{profile.name} has no such command.")
        output.record({"kind": "profile_alias_removed", "profile": profile.name, "commands": gone})
        output.line(f"Removed {', '.join(gone)}.")
        return 0
    wrapper = make_wrapper(profile.name, name, _launcher(), reserved=_reserved())
    output.record(
        {
            "kind": "profile_alias",
            "profile": profile.name,
            "command": wrapper.alias,
            "path": str(wrapper.path),
        }
    )
    output.line(f"{wrapper.alias} runs nedura -p {profile.name} ({wrapper.path}).")
    return 0


def export(args: argparse.Namespace, output: Output) -> int:
    """Write an archive."""
    root = _root()
    profile = find_profile(root, args.name)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = Path(args.output) if args.output else default_target(root, profile.name, stamp)
    made = export_profile(root, profile.name, target)
    output.record(
        {
            "kind": "profile_exported",
            "path": str(made.path),
            "files": made.files,
            "left_out": [*made.left_out],
        }
    )
    output.line(f"Wrote {counted(made.files, 'file')} of {profile.name} to {made.path}.")
    output.line("Credentials are left out, and what looks like one is masked. Read it before you share it.")
    _left_out(made.left_out, output)
    return 0


def _left_out(paths: Sequence[str], output: Output) -> None:
    for path in paths[:20]:
        output.remark(f"left out: {clean(path, 200)}")
    if len(paths) > 20:
        output.remark(f"left out: {len(paths) - 20} more (--json names them all)")


def import_(args: argparse.Namespace, output: Output) -> int:
    """Make a profile of an archive."""
    made = import_profile(_root(), Path(args.file), name=args.name)
    output.record(
        {
            "kind": "profile_imported",
            **_record(made.profile),
            "files": made.files,
            "left_out": [*made.left_out],
        }
    )
    output.line(f"Made {made.profile.name} of {counted(made.files, 'file')} in {made.profile.home}.")
    _left_out(made.left_out, output)
    return 0
