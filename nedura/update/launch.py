"""What a launch of the command does about an update that is not finished: try the tail again, ask the fleet, say one line each.

Costs two look-ups and the names of one folder when nothing is owed (decision 49, facts/update.md 8.5 and 10).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from nedura.errors import NeduraError, StoreError
from nedura.homes import process_home, root_home
from nedura.installs import (
    CodeIdentity,
    InstallPaths,
    checkout_of,
    install_id_for,
    read_identity,
    release_of,
    running_code,
    sealed_install_of,
)
from nedura.locks import FileLock
from nedura.product import NEDURA, Product
from nedura.records import read_json
from nedura.text import clean, redact
from nedura.update.ledger.leftovers import sweep_folder
from nedura.update.ledger.lock import is_running, lock_place
from nedura.update.ledger.obligations import RestartObligation, TailObligation, restart_folder

if TYPE_CHECKING:
    from nedura.update.fleet_parts import FleetParts

__all__ = ["Launch"]

FOREGROUND_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.5
Say = Callable[[str], None]


class Finisher(Protocol):
    """Starts the run that finishes what is owed and waits a while."""

    def __call__(self, limit: float) -> int | None:
        """Its exit code, or None while it still runs."""
        ...


@attrs.frozen(kw_only=True)
class Launch:
    """One launch of the command.

    Attributes:
        root_home: the root home.
        install: the install whose code runs.
        shared: what the restart record is keyed by.
        environ, product: environment and names.
        say: takes each line (stderr).
        finish: seam; default this command's own `update --finish-owed`, detached.
        now: unix seconds.
        fleet: seam; default the real one.
    """

    root_home: Path
    install: InstallPaths
    shared: Path
    environ: Mapping[str, str]
    say: Say
    product: Product = NEDURA
    finish: Finisher | None = None
    now: Callable[[], float] = time.time
    fleet: FleetParts | None = None

    @classmethod
    def here(
        cls, say: Say, environ: Mapping[str, str] | None = None, product: Product = NEDURA
    ) -> Launch | None:
        """The launch of this process; None when its code belongs to no install."""
        environ = os.environ if environ is None else environ
        root = root_home(process_home(environ), environ)
        sealed = sealed_install_of(Path(__file__))
        if sealed is not None:
            return cls(
                root_home=root,
                install=sealed,
                shared=sealed.folder,
                environ=environ,
                say=say,
                product=product,
            )
        checkout = checkout_of(Path(__file__)) or release_of(Path(__file__))
        if checkout is None:
            return None
        paths = InstallPaths(root, install_id_for(checkout))
        return cls(root_home=root, install=paths, shared=checkout, environ=environ, say=say, product=product)

    def settle(self) -> None:
        """Do what is due. Never raises: a launch must not fail because of an old update."""
        for home in {self.root_home, process_home(self.environ)}:
            sweep_folder(home, self.now())
            if os.path.lexists(home / ".update_prompt.json"):  # a killed update's, or one that waits just now
                from nedura.update.prompt import forget_old_prompt

                forget_old_prompt(home)
        try:
            self._retry_tail()
            self._ask_fleet()
        except Exception as error:  # border of a courtesy: what was asked for must go on
            why = (
                str(error) if isinstance(error, NeduraError | OSError) else f"{type(error).__name__}: {error}"
            )
            text = clean(redact(why), 300)
            self.say(
                f"{self.product.command}: the last update is not finished, and that could not be looked at: {text}"
            )

    def _retry_tail(self) -> None:
        tail = TailObligation(self.install.folder)
        if not tail.is_armed():
            return
        if self._is_running():
            return  # it is being finished right now, if only by the half that survived
        attempts = tail.attempts()
        command = self.product.command
        if attempts.exhausted:
            self.say(
                f"{command}: the last update is not finished; {attempts.count} retries failed. Run: {command} update"
            )
            return
        if not attempts.due(self.now()):
            return
        turn = FileLock(self.install.folder / "source-completion-retry.lock", "the retry of the last update")
        if not turn.try_acquire():
            return  # another launch is at it
        try:
            tail.count_attempt(self.now())
            self.say(f"{command}: finishing what the last update left ...")
            code = (self.finish or self._start)(FOREGROUND_SECONDS)
        finally:
            turn.release()
        if code is None:
            self.say(f"{command}: that goes on in the background; see: {command} logs update")
        elif code != 0 or tail.is_armed():
            self.say(f"{command}: the last update is still not finished; see: {command} logs update")

    def _is_running(self) -> bool:
        checkout = None if self.shared == self.install.folder else self.shared
        lock_file = lock_place(self.install.folder, checkout, self.product)
        return is_running(self.root_home, lock_file, self.product, self.now())

    def _start(self, limit: float) -> int | None:
        flags = ["-I", "-B"] if sys.flags.isolated else ["-B"]
        argv = [
            sys.executable,
            *flags,
            "-m",
            self.product.main_modules[0],
            "update",
            "--finish-owed",
            "--json",
        ]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",  # it may outlive us: it keeps no folder of the caller's busy and imports nothing from it
            start_new_session=True,
            env={**self.environ, self.product.env("HOME"): str(self.root_home)},
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.returncode = 0  # it goes on by itself; this object has nothing to reap any more
            return None

    def _ask_fleet(self) -> None:
        """The restart warning, after the live fleet was asked: what it proves is cleared without a word."""
        debt = RestartObligation(restart_folder(self.environ, self.product), self.shared, self.root_home)
        record = debt.read()
        told = record is None and self._is_told_stale()
        if (record is None and not told) or self._is_running():
            return  # a running update arms it before its move and restarts the fleet itself
        import asyncio  # only a debt pays for it

        command = self.product.command
        if told:
            stale = asyncio.run(self._stale())
            if stale:
                self.say(
                    f"{command}: the code in {self.shared} was changed by somebody else, and gateways of this home still run the "
                    f"old one: {', '.join(stale)}. Run: {command} update (or: {command} gateway restart --all)"
                )
            return
        owed = asyncio.run(self._owed(debt))
        if owed is None:
            return
        names = f": {', '.join(owed)}" if owed else ""
        self.say(
            f"{command}: a previous update changed the code, but the fleet was not wholly restarted{names}. "
            f"Run: {command} update (or: {command} gateway restart --all)"
        )

    def _is_told_stale(self) -> bool:
        """Whether a gateway here says that its working tree holds other code by now: whoever moved that tree, a person or the update
        of another home that shares it, restarts only gateways of his own and has no debt left. A sealed install has one root home.
        """
        if self.shared == self.install.folder:
            return False
        for home in {self.root_home, process_home(self.environ)}:
            try:
                said = read_json(home / "gateway_state.json")
            except StoreError:
                continue
            if isinstance(said, dict) and said.get("stale") is True:
                return True
        return False

    async def _stale(self) -> tuple[str, ...]:
        from nedura.update.ledger.settle import stale_members

        return await stale_members(**self._asked())

    async def _owed(self, debt: RestartObligation) -> tuple[str, ...] | None:
        """Profiles that still owe a restart; None when the live fleet proves that nobody does."""
        from nedura.update.ledger.settle import settle_from_fleet

        return await settle_from_fleet(debt, **self._asked())

    def _asked(self) -> dict[str, Any]:
        """What a look at the fleet is about."""
        return {
            "root_home": self.root_home,
            "install_id": self.install.install_id,
            "expected": self._current(),
            "product": self.product,
            "environ": self.environ,
            "fleet": self.fleet,
        }

    def _current(self) -> CodeIdentity:
        """What a start now would run."""
        try:
            folder = self.install.pointed()
            return read_identity(folder) if folder is not None else running_code()
        except StoreError:
            return running_code()
