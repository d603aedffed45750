"""The debug bundle: an allow-list of files about updates and the fleet, force-redacted, 0600, written locally and sent nowhere.

Two nets: whatever looks like a credential, and the very values that the stores of this home hold, in every form they may take
(plain, URL-encoded, base64; threats.md 6).
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import attrs

from nedura._version import __version__
from nedura._yaml import parse_yaml
from nedura.clock import iso
from nedura.errors import NeduraError, RefusedError, StoreError
from nedura.homes import home_for_profile
from nedura.installs import find_installs, running_code
from nedura.profile_env import parse_env
from nedura.records import make_folder, open_ours, read_bytes, write_bytes
from nedura.text import redact, redact_words
from nedura.update.ledger.masks import masked_whole

__all__ = ["Bundle", "BundleItem", "collect_bundle", "known_secrets", "mask", "write_bundle"]

MASK: Final = "[redacted]"
MAX_FILE: Final = 8 * 1024 * 1024
LOG_TAIL: Final = 256 * 1024
_SECRET_KEY: Final = re.compile(
    r"(?i)token|secret|password|passwd|passphrase|api[_-]?key|authorization|credential|private[_-]?key|refresh|cookie"
    r"|_(?:key|pass|pwd|pat|auth)$"
)
MARGIN: Final = 64 * 1024
"""Bytes before a log's tail that are read and masked with it, then left out: what the tail would begin in the middle of is masked whole."""
_SHORTEST: Final = 6
"""Values shorter than this are not hunted for: they would mask ordinary words."""


@attrs.frozen(kw_only=True)
class BundleItem:
    """One file of a bundle, redacted.

    Attributes:
        name: its name in the bundle.
        text: its content.
    """

    name: str
    text: str


@attrs.frozen(kw_only=True)
class Bundle:
    """What a bundle holds.

    Attributes:
        items: files, redacted.
        left_out: name -> why it is not in.
    """

    items: tuple[BundleItem, ...]
    left_out: Mapping[str, str] = attrs.field(factory=dict)


def _strings(value: Any, secret: bool = False) -> Iterator[str]:
    """String values that stand under a secret-named key, at any depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, secret or bool(_SECRET_KEY.search(str(key))))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, secret)
    elif isinstance(value, str) and secret:
        yield value


def _env_values(text: str) -> Iterator[str]:
    """Values of an environment file, also what stands before a comment and quoted ones of several lines."""
    yield from parse_env(text).values()
    for line in text.splitlines():
        _, sign, value = line.partition("=")
        if sign:
            yield value.strip().strip("'\"")
    for match in re.finditer(r"(?ms)=\s*([\"'])(.*?)\1\s*$", text):
        yield match[2]


def _config_values(text: str) -> Iterator[str]:
    """Values under secret-named keys of a config; of one that cannot be parsed those that stand on the key's line."""
    try:
        yield from _strings(parse_yaml(text.encode("utf-8", "replace"), "config.yaml"))
    except NeduraError:
        pass
    for match in re.finditer(
        r"(?im)^[\s\-{\"']*([\w-]*(?:token|key|secret|password)[\w-]*)[\"']?\s*:\s*['\"]?([^'\"\s#,}]+)", text
    ):
        yield match[2]


def _with_lines(values: Iterable[str]) -> Iterator[str]:
    """Each value, and each line of one that has several: a log shows them one by one."""
    for value in values:
        yield value.strip()
        lines = [line.strip() for line in value.splitlines()]
        if len(lines) > 1:
            yield from (line for line in lines if len(line) >= 2 * _SHORTEST and not line.startswith("-----"))


def _userinfo(text: str) -> Iterator[str]:
    for match in re.finditer(r"://([^/\s@]+)@", text):
        yield from match[1].split(":", 1)


def _read(path: Path) -> str:
    try:
        return read_bytes(path, MAX_FILE).decode("utf-8", "replace")
    except StoreError:
        return ""


def _tail(path: Path) -> tuple[str, bool]:
    """The end of a log, with a margin before it, and whether something was left out.

    Raises:
        StoreError: it cannot be read.
    """
    handle = open_ours(path)
    try:
        size = os.fstat(handle).st_size
        start = max(0, size - LOG_TAIL - MARGIN)
        data = os.pread(handle, LOG_TAIL + MARGIN, start)
    except OSError as error:
        raise StoreError(f"{path.name} cannot be read: {error.strerror}.") from error
    finally:
        os.close(handle)
    return data.decode("utf-8", "replace"), start > 0


def _after_margin(text: str) -> str:
    """A masked tail without its margin's share, from a whole line on."""
    rest = text[len(text) * MARGIN // (LOG_TAIL + MARGIN) :]
    return rest.partition("\n")[2] or rest


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def known_secrets(root_home: Path, homes: Iterable[Path]) -> frozenset[str]:
    """Every secret value that the stores of these homes hold.

    Args:
        root_home: the root home.
        homes: homes of all profiles.
    """
    found: set[str] = set()
    for home in homes:
        for name in ("auth.json", "guest_handoff.json"):
            found.update(_with_lines(_strings(_json(_read(home / name)))))
        found.update(_with_lines(_config_values(_read(home / "config.yaml"))))
        found.update(_with_lines(_env_values(_read(home / ".env"))))
    for path in (root_home / "shared").glob("*.json") if (root_home / "shared").is_dir() else ():
        found.update(_strings(_json(_read(path))))
    for paths in find_installs(root_home):
        found.update(_userinfo(_read(paths.record)))
    return frozenset(value for value in found if len(value) >= _SHORTEST)


def _forms(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "replace")
    yield value
    yield unquote(value)
    yield quote(value, safe="")
    yield "".join(f"%{byte:02X}" for byte in raw)
    for shift in range(3):  # base64 of a text that holds it at any offset
        text = base64.b64encode(b"\0" * shift + raw).decode()
        yield text[(0, 2, 3)[shift] : -4].rstrip("=")
    yield json.dumps(value)[1:-1]


def mask(text: str, secrets: Iterable[str]) -> str:
    """Text without any of these values in any form, nor anything that looks like a credential."""
    for form in sorted(
        {form for value in secrets for form in _forms(value) if len(form) >= _SHORTEST}, key=len, reverse=True
    ):
        text = re.sub(re.escape(form), MASK, text, flags=re.IGNORECASE)
    return redact(text)


def _masked_json(value: Any) -> Any:
    """A JSON value whose secret-named keys hold the mask, at any depth, and whose command lines are masked word by word."""
    if isinstance(value, Mapping):
        return {
            key: masked_whole(item) if _SECRET_KEY.search(str(key)) else _masked_json(item)
            for key, item in value.items()
        }
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return redact_words(value)
    return [_masked_json(item) for item in value] if isinstance(value, list) else value


def collect_bundle(
    root_home: Path,
    profiles: Iterable[str],
    *,
    now: float,
    reports: Mapping[str, Callable[[], Any]] | None = None,
) -> Bundle:
    """Collect and redact everything on the allow-list.

    Args:
        root_home: the root home.
        profiles: names of all profiles.
        now: unix seconds.
        reports: name -> what makes a JSON report (plan, fleet status); one that fails is left out with its reason.
    """
    homes = {name: home_for_profile(root_home, name) for name in profiles}
    secrets = known_secrets(root_home, [root_home, *homes.values()])
    items: list[BundleItem] = []
    left_out: dict[str, str] = {}

    def add(name: str, text: str) -> None:
        value = _json(text) if name.endswith(".json") else None
        clean = json.dumps(_masked_json(value), indent=2, ensure_ascii=False) if value is not None else text
        items.append(BundleItem(name=mask(name, secrets), text=mask(clean, secrets)))

    about = {"version": __version__, "made_at": iso(now), "code": attrs.asdict(running_code())}
    add("about.json", json.dumps(about))
    for name, path in _allowed(root_home, homes):
        if not path.is_file() or path.is_symlink():
            continue
        try:
            if name.endswith(".log"):
                text, cut = _tail(path)
                masked = mask(text, secrets)
                items.append(BundleItem(name=name, text=_after_margin(masked) if cut else masked))
            else:
                add(name, read_bytes(path, MAX_FILE).decode("utf-8", "replace"))
        except StoreError as error:
            left_out[name] = mask(error.message, secrets)
    for name, make in (reports or {}).items():
        try:
            add(name, json.dumps(make(), ensure_ascii=False))
        except Exception as error:  # border: one report must not cost the bundle
            left_out[name] = mask(f"{type(error).__name__}: {error}", secrets)[:300]
    return Bundle(items=tuple(items), left_out=left_out)


def _allowed(root_home: Path, homes: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """The allow-list: receipts, update log, install records, state files. Never .env, auth or config."""
    receipts = root_home / "logs" / "update_receipts"
    if receipts.is_dir():
        for path in sorted(receipts.glob("*.json"))[-21:]:
            yield f"receipts/{path.name}", path
    yield "update.log", root_home / "logs" / "update.log"
    for paths in find_installs(root_home):
        for name in (
            "install.json",
            "failed.json",
            "source-completion-pending",
            "source-completion-attempts",
            "moving.json",
        ):
            yield f"installs/{paths.install_id}/{name}", paths.folder / name
    for name, home in homes.items():
        yield f"profiles/{name}/gateway_state.json", home / "gateway_state.json"


def write_bundle(bundle: Bundle, path: Path) -> int:
    """Write a bundle as a zip, 0600, its members 0600 too; returns its size.

    Raises:
        RefusedError: something is there already; it is kept.
        StoreError: it cannot be written.
    """
    if os.path.lexists(path):
        raise RefusedError(f"{path} is there already and is kept.", advice="Name another file with --output.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in bundle.items:
            info = zipfile.ZipInfo(item.name)
            info.external_attr = 0o600 << 16
            archive.writestr(info, item.text)
    data = buffer.getvalue()
    make_folder(path.parent)
    write_bytes(path, data)
    return len(data)
