"""The disk as the soak looks at it: read without the library's own code, and made to forget what was not synced."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tests.soak.plan import PROFILES


@attrs.frozen(kw_only=True)
class Login:
    """Who a store says is signed in. `name` is the `sub` of an account, also of one that has ended, or a free tier's credential."""

    kind: str = "none"
    name: str = ""
    refresh: str = ""

    @property
    def who(self) -> tuple[str, str]:
        return self.kind, self.name


@attrs.frozen(kw_only=True)
class Seen:
    """One look at a root.

    Attributes:
        logins: profile -> the login in its own store.
        held: the identity of the shared store.
        shared: account -> its refresh tokens in the shared store.
        spent: fingerprints of refresh tokens that were sent.
        records: (profile, record id) -> hand-off record.
        broken: what is torn or readable by others.
    """

    logins: Mapping[str, Login]
    held: Login
    shared: Mapping[str, frozenset[str]]
    spent: frozenset[str]
    records: Mapping[tuple[str, str], Mapping[str, Any]]
    broken: tuple[str, ...]

    def reachable(self, profile: str, account: str) -> frozenset[str]:
        """Refresh tokens of an account that a profile could still redeem: its own and those where siblings look."""
        login = self.logins[profile]
        own = {login.refresh} if login.who == ("account", account) else set()
        found = own | self.shared.get(account, frozenset())
        return frozenset(token for token in found if token and fingerprint(token) not in self.spent)


def home_of(root: Path, profile: str) -> Path:
    return root / "profiles" / profile if profile else root


def look(root: Path) -> Seen:
    """Read every store of a root."""
    broken: list[str] = []

    def load(path: Path) -> dict[str, Any]:
        if not path.exists():
            return {}
        if path.stat().st_mode & 0o077:
            broken.append(f"{path.name} is readable by others")
        try:
            value = json.loads(path.read_bytes())
        except ValueError:
            broken.append(f"{path.relative_to(root)} is torn")
            return {}
        return value if isinstance(value, dict) else {}

    logins, records = {}, {}
    for profile in PROFILES:
        home = home_of(root, profile)
        logins[profile] = _login(load(home / "auth.json").get("providers", {}).get("nous") or {})
        for record in load(home / "guest_handoff.json").get("records", []):
            records[profile, record["id"]] = record
    document = load(root / "shared" / "nous_auth.json")
    shared: dict[str, set[str]] = {}
    for login in (_login(document), *map(_login, document.get("renewal", {}).values())):
        shared.setdefault(login.name, set()).add(login.refresh)
    return Seen(
        logins=logins,
        held=_login(document),
        shared={name: frozenset(tokens) for name, tokens in shared.items()},
        spent=frozenset(load(root / "shared" / "nous_spent.json").get("spent", {})),
        records=records,
        broken=tuple(broken),
    )


def fingerprint(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def _login(entry: Mapping[str, Any]) -> Login:
    if entry.get("auth_method") == "anonymous" or (
        entry.get("anon_token") and not entry.get("refresh_token")
    ):
        return Login(kind="guest", name=str(entry.get("anon_token") or ""))
    refresh = str(entry.get("refresh_token") or "")
    access = entry.get("access_token")
    if isinstance(access, str) and access:
        return Login(kind="account", name=_subject(access), refresh=refresh)
    return (
        Login(kind="dead", name=str(entry.get("account_sub") or ""))
        if entry.get("last_auth_error")
        else Login()
    )


def _subject(token: str) -> str:
    part = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["sub"])


Files = dict[Path, bytes]


def copy_of(root: Path) -> Files:
    """Every file's bytes."""
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


_CALL: Final = re.compile(r"^(\d+)\s+(\w+)\((.*)\)\s+= (\S+)(.*)$")
_UNFINISHED: Final = re.compile(r"^(\d+)\s+(\w+)\((.*?)\s*<unfinished \.\.\.>$")
_RESUMED: Final = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
_PATH: Final = re.compile(r"\d+<([^>]*)>")


def _whole_calls(lines: Iterable[str]) -> Iterable[str]:
    """Join calls that the tracer printed in two halves."""
    begun: dict[tuple[str, str], str] = {}
    for line in lines:
        if found := _UNFINISHED.match(line):
            begun[found[1], found[2]] = f"{found[1]} {found[2]}({found[3]}"
        elif found := _RESUMED.match(line):
            yield begun.pop((found[1], found[2]), f"{found[1]} {found[2]}(") + found[3]
        else:
            yield line


def cut_power(root: Path, before: Files, trace: str, rng: random.Random) -> int:
    """Make the disk forget what a traced run renamed but did not sync; returns how many files changed by that.

    A file whose bytes were not synced before its rename comes back empty. A rename whose folder was not synced afterwards may be undone.
    """
    synced: set[str] = set()
    pending: dict[str, bool] = {}  # renamed, folder not synced -> were its bytes synced
    settled: dict[str, bool] = {}
    for call in _whole_calls(trace.splitlines()):
        found = _CALL.match(call)
        if found is None or found[4] != "0" or "INJECTED" in found[5]:
            continue
        name, arguments = found[2], found[3]
        if name in ("fsync", "fdatasync"):
            path = _PATH.match(arguments)
            if path is None:
                continue
            synced.add(path[1])
            for target in [one for one in pending if os.path.dirname(one) == path[1]]:
                settled[target] = pending.pop(target)
        elif name.startswith("rename"):
            source, target = _rename_paths(arguments)
            pending[target] = source in synced
    return _forget(root, before, pending, settled, rng)


def _rename_paths(arguments: str) -> tuple[str, str]:
    folders, names = _PATH.findall(arguments), re.findall(r'"([^"]*)"', arguments)
    if len(folders) >= 2:
        return os.path.join(folders[0], names[0]), os.path.join(folders[1], names[1])
    return names[0], names[1]


def _forget(
    root: Path, before: Files, pending: Mapping[str, bool], settled: Mapping[str, bool], rng: random.Random
) -> int:
    changed = 0
    for target, bytes_synced in {**settled, **pending}.items():
        path = Path(target)
        if root not in path.parents or not path.exists():
            continue
        if not bytes_synced:
            path.write_bytes(b"")
            changed += 1
        elif target in pending and target not in settled and rng.random() < 0.5:
            if path in before:
                path.write_bytes(before[path])
            else:
                path.unlink()
            changed += 1
    return changed
