"""Folders on a command line: an unset variable of a script must not mean another folder than its author thought."""

from __future__ import annotations

import argparse
from pathlib import Path

from nedura.text import clean

__all__ = ["existing_folder", "named_path"]


def named_path(text: str) -> Path:
    """A path that names something; relative ones count from where the command was started.

    Raises:
        argparse.ArgumentTypeError: it is blank, or names the home of an unknown user.
    """
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError("it names no folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(
            f"{clean(text, 200)!r} is in the home of a user who is not known"
        ) from error


def existing_folder(text: str) -> Path:
    """A folder that is there.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    path = named_path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{clean(text, 200)!r} is no folder")
    return path
