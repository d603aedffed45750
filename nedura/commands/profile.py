"""Grammar of the `profile` commands."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add them to the top-level parser."""
    profile = commands.add_parser(
        "profile", help="isolated homes: own config, account, memory and gateway each"
    )
    verbs = profile.add_subparsers(dest="verb", metavar="VERB")

    def verb(name: str, text: str, *, named: bool = True) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="machine-readable output")
        parser.set_defaults(handler=f"nedura_cli.profile:{name}")
        if named:
            parser.add_argument("name", help="the profile")
        return parser

    verb("list", "list every profile, whichever is active", named=False)
    _create(verb("create", "make a new profile"))
    verb("use", "make a profile the one that commands without -p use")
    show = verb("show", "show one profile: home, model, account, gateway, commands", named=False)
    show.add_argument("name", nargs="?", default="", help="the profile (default: the one in use)")
    verb("describe", "save one line about a profile").add_argument("text", help="the line; empty removes it")
    verb("rename", "rename a profile; the default gets a display name").add_argument(
        "to", help="the new name"
    )
    delete = verb("delete", "stop what runs on a profile and delete it")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask for the name")
    alias = verb("alias", "make a command of a profile's own in ~/.local/bin")
    alias.add_argument(
        "--name", dest="alias", metavar="COMMAND", help="what to call it (default: the profile)"
    )
    alias.add_argument("--remove", action="store_true", help="remove it instead")
    export = verb("export", "write a profile as an archive without secrets")
    export.add_argument("-o", "--output", metavar="FILE", help="the archive (default: below profile-exports)")
    bring = verb("import", "make a profile of an archive", named=False)
    bring.add_argument("file", help="the archive")
    bring.add_argument(
        "--name", metavar="NAME", default="", help="what to call it (default: as in the archive)"
    )
    bring.set_defaults(handler="nedura_cli.profile:import_")


def _create(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--clone", action="store_true", help="take settings, identity and skills of the profile in use"
    )
    how.add_argument("--clone-all", action="store_true", help="take everything but history and sign-ins")
    parser.add_argument(
        "--clone-from", metavar="NAME", default="", help="clone this profile instead of the one in use"
    )
    parser.add_argument(
        "--clone-channels", action="store_true", help="take chat platforms and their tokens too"
    )
    parser.add_argument("--no-alias", action="store_true", help="make no command of its own")
    parser.add_argument("--no-skills", action="store_true", help="never put bundled skills into it")
    parser.add_argument("--description", metavar="TEXT", default="", help="one line about it")
