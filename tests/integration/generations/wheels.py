"""Tiny wheels and source distributions, made by hand."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from nedura.records import make_folder, write_bytes

__all__ = ["lock_line", "sdist", "sha256", "wheel"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, leave_out: tuple[str, ...] = ()
) -> Path:
    """A pure wheel; names in `leave_out` stand in its RECORD without being in it."""
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in content.items():
            if path not in leave_out:
                archive.writestr(path, text)
    make_folder(folder)
    path_of = folder / f"{name}-{version}-py3-none-any.whl"
    write_bytes(path_of, buffer.getvalue(), 0o644)
    return path_of


def sdist(folder: Path, name: str, version: str, mark: Path) -> Path:
    """A source distribution whose build code leaves a marker."""
    setup = f"open({str(mark)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={name!r}, version={version!r})\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in (
            ("setup.py", setup),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    make_folder(folder)
    path_of = folder / f"{name}-{version}.tar.gz"
    write_bytes(path_of, buffer.getvalue(), 0o644)
    return path_of


def lock_line(name: str, version: str, digest: str) -> str:
    return f"{name}=={version} --hash=sha256:{digest}\n"
