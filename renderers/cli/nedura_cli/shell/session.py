"""What the shell can do, apart from how it is drawn: one home, one model, one conversation, the slash commands."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs
from rich.console import RenderableType

from nedura.config import edit_config, read_config, set_value
from nedura.errors import ConfigError, NeduraError, UsageError
from nedura.homes import profile_name, root_home
from nedura.inference import stream_reply
from nedura.profile_env import profile_environment
from nedura.profile_flag import sticky_profile
from nedura.profiles import find_profile, list_profiles
from nedura.signin import SignInState, auth_status, log_out, run_sign_in
from nedura.skin_files import save_choice
from nedura.skins import active_name, find_skin, list_skins, load_active
from nedura.text import clean, utc_text
from nedura.update import ReceiptStore, known_kinds, status_of
from nedura.wire import Event, from_wire
from nedura_cli.elements import StatusFacts
from nedura_cli.look import Look
from nedura_cli.owed import owed_now
from nedura_cli.profile_facts import account_of, gateway_of, model_of
from nedura_cli.shell.models import ModelNames
from nedura_cli.shell.saved import fresh_name, save
from nedura_cli.shell.skin_watch import SkinWatch
from nedura_cli.shell.slash import COMMANDS, Line, find
from nedura_cli.shell.talk import Conversation, Stream

__all__ = ["Face", "Session", "config_trouble", "facts_for"]


class Face(Protocol):
    """What a session needs of its surface."""

    def say(self, text: str, key: str = "banner_text") -> None:
        """Print a line."""
        ...

    def show(self, what: RenderableType) -> None:
        """Print something drawn."""
        ...

    def relook(self, look: Look) -> None:
        """The skin has changed."""
        ...

    async def login(self, make: Callable[[Callable[[], bool]], AsyncGenerator[SignInState, None]]) -> None:
        """Run a sign-in, or join the one that runs."""
        ...

    async def answer(self, text: str) -> None:
        """Send a message and show the answer."""
        ...

    def leave(self) -> None:
        """End the shell."""
        ...


@attrs.define
class Session:
    """One shell's state.

    Attributes:
        home: the home it works on now.
        look: how it looks.
        model: model of this session; empty for the configured one.
        reasoning: reasoning effort of this session; empty for the model's own.
        talk: the conversation.
        name: what the conversation is kept under.
        stream: where messages go.
        updating: the running update's process.
        update_began: when it was asked for (monotonic seconds); 0 when none runs.
        names: model ids for completion.
        watch: looks whether the skin has changed.
        moved: told the home when the session goes to another profile; may take a second.
    """

    home: Path
    look: Look
    model: str = ""
    reasoning: str = ""
    talk: Conversation = attrs.field(factory=Conversation)
    name: str = ""
    stream: Stream = stream_reply
    updating: asyncio.subprocess.Process | None = None
    update_began: float = 0.0
    names: ModelNames = attrs.field(factory=ModelNames)
    moved: Callable[[Path], None] = lambda home: None
    watch: SkinWatch = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.name = self.name or fresh_name(self.home)
        self.watch = SkinWatch(self.home, active_name(self.home))

    @property
    def root(self) -> Path:
        """Root of the home."""
        return root_home(self.home)

    @property
    def profile(self) -> str:
        """Name of the profile."""
        return profile_name(self.home, self.root)

    @property
    def busy(self) -> str:
        """What runs beside the prompt, with its time: the sign that it lives between two of its lines."""
        return f"updating, {time.monotonic() - self.update_began:.0f} s" if self.update_began else ""

    def route_options(self) -> dict[str, str]:
        """What this session asks of the model route beside the messages."""
        wanted = {"model": self.model, "reasoning": self.reasoning}
        return {name: value for name, value in wanted.items() if value}

    async def run(self, line: Line, face: Face) -> None:
        """Do what a line asks for. Errors of ours become one line."""
        try:
            if line.is_message:
                await face.answer(line.text)
            elif line.command is None:
                near = f" Did you mean /{line.near}?" if line.near else ""
                face.say(f"There is no {clean(line.text.split()[0], 40)}.{near} See /help.", "ui_error")
            else:
                await _VERBS[line.command.name](self, line, face)
        except NeduraError as error:
            face.say(error.diagnostics(), "ui_error")

    async def sign_in(self, face: Face) -> None:
        """`/login`."""
        home = self.home
        await face.login(lambda cancelled: run_sign_in(home=home, timeout=8.0, cancelled=cancelled))

    def profiles(self) -> Sequence[tuple[str, str]]:
        """Names for completion."""
        return [(profile.name, str(profile.home)) for profile in list_profiles(self.root)]

    def skins(self) -> Sequence[tuple[str, str]]:
        """Names for completion."""
        return [(entry.name, entry.description) for entry in list_skins(self.home)]

    def models(self) -> Sequence[tuple[str, str]]:
        """The configured model, the session's, and what is known of the account's; others are typed."""
        configured = model_of(find_profile(self.root, self.profile)) if self.profile != "custom" else ""
        marks = {configured: "in the config", self.model: "of this session"}
        names = dict.fromkeys((configured, self.model, *self.names.known(self.home)))
        return [(name, marks.get(name, "")) for name in names if name]

    def new_look(self) -> Look | None:
        """How it looks from now on when the skin was edited or chosen elsewhere, else None. Reads files.

        Raises:
            ConfigError: the skin cannot be used as it is now.
        """
        skin = self.watch.look()
        if skin is None:
            return None
        self.look = Look(skin, self.look.terminal)
        return self.look

    def keep(self) -> None:
        """Keep the conversation in its home.

        Raises:
            StoreError: it cannot be written.
        """
        save(self.home, self.name, self.talk)


async def _help(session: Session, line: Line, face: Face) -> None:
    one = find(line.words[0].lstrip("/")) if line.words else None
    if one is not None:
        face.say(f"/{one.name} {one.usage}".rstrip() + f"  {one.about}")
        return
    face.say(session.look.skin.branding.help_header, "banner_accent")
    for command in COMMANDS:
        face.say(f"  {f'/{command.name} {command.usage}'.rstrip():<26}{command.about}")
    face.say("Anything else is a message to the model. Ctrl-C stops an answer, Ctrl-D leaves.", "banner_dim")


async def _login(session: Session, line: Line, face: Face) -> None:
    await session.sign_in(face)


async def _logout(session: Session, line: Line, face: Face) -> None:
    face.say((await log_out(session.home)).copy_terminal)


async def _status(session: Session, line: Line, face: Face) -> None:
    for text in (await auth_status(session.home)).copy_terminal.split("\n"):
        face.say(text)
    facts = await asyncio.to_thread(facts_for, session)
    face.say(_model_line(facts.model))
    face.say(f"Gateway: {facts.gateway or 'not running'}.")
    receipt = await asyncio.to_thread(ReceiptStore(session.root).newest)
    if receipt:
        face.say(
            f"Last update: {clean(status_of(receipt).outcome)} at {utc_text(receipt.get('started_at'))}."
        )
        for owed in receipt.get("followups") or ():
            face.say(f"Owed: {clean(owed.get('step'))}: {clean(owed.get('reason'))}", "ui_warn")


async def _update(session: Session, line: Line, face: Face) -> None:
    """The update runs as a process of its own: leaving the shell does not end it, and typing goes on beside it."""
    if session.update_began:
        face.say("An update is running already; its lines appear here.", "ui_warn")
        return
    session.update_began = time.monotonic()
    face.say("Starting the update ...", "banner_dim")
    try:
        session.updating = await _start_update(session)
        async for event in _events(session.updating):
            for text in event.copy_terminal.split("\n"):
                if text.strip():
                    face.say(text)
        code = await session.updating.wait()
        if code:
            face.say(f"The update ended with exit code {code}.", "ui_error")
    finally:
        session.updating, session.update_began = None, 0.0


async def _start_update(session: Session) -> asyncio.subprocess.Process:
    launcher = session.root / "bin" / "nedura"
    command = [str(launcher)] if launcher.exists() else [sys.executable, "-m", "nedura_cli"]
    return await asyncio.create_subprocess_exec(
        *command,
        "update",
        "--json",
        env=profile_environment(session.home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=4 * 1024 * 1024,
    )


async def _events(process: asyncio.subprocess.Process) -> AsyncGenerator[Event, None]:
    if process.stdout is None:
        return
    while line := await process.stdout.readline():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, Mapping):
            yield from_wire(record, known_kinds())


def _model_line(name: str) -> str:
    return (
        f"Model: {name}."
        if name
        else "No model is chosen. Choose one: /model ID --save, or nedura model for a list."
    )


async def _model(session: Session, line: Line, face: Face) -> None:
    if not line.words:
        read_config(session.home)  # one that cannot be read says so, not that nothing is chosen
        face.say(_model_line((await asyncio.to_thread(facts_for, session)).model))
        return
    name = clean(line.words[0], 120)
    session.model = name
    if "--save" in line.options:
        edit_config(session.home, lambda content: set_value(content, "model.default", name))
    face.say(f"The model is {name} {'from now on' if '--save' in line.options else 'for this session'}.")


async def _skin(session: Session, line: Line, face: Face) -> None:
    if not line.words:
        for entry in list_skins(session.home):
            mark = "*" if entry.name == session.look.skin.name else " "
            where = "" if entry.source is None else f"  ({entry.source})"
            face.say(f"{mark} {entry.name:<12}{entry.description}{where}")
        return
    name = line.words[0]
    try:
        skin = find_skin(session.home, name)  # at once: the next line that was typed comes after it
    except ConfigError as error:
        reason = error.message.rstrip(".")
        raise UsageError(f"{reason[:1].upper()}{reason[1:]}.", advice="See: /skin") from error
    for warning in skin.warnings:
        face.say(f"{warning}.", "ui_warn")
    if "--save" in line.options:
        save_choice(session.home, name)
    session.watch = SkinWatch(session.home, name, chosen="--save" not in line.options)
    session.look = Look(skin, session.look.terminal)
    face.relook(session.look)
    face.say(f"The skin is {name} {'from now on' if '--save' in line.options else 'for this session'}.")


async def _profile(session: Session, line: Line, face: Face) -> None:
    if not line.words:
        sticky = sticky_profile(session.root) or "default"
        for profile in list_profiles(session.root):
            mark = "*" if profile.home == session.home else " "
            face.say(f"{mark} {profile.name}{'  (sticky)' if profile.name == sticky else ''}")
        return
    profile = find_profile(session.root, line.words[0])
    await asyncio.to_thread(session.keep)
    session.home = profile.home
    await asyncio.to_thread(session.moved, profile.home)
    session.talk, session.name = Conversation(), fresh_name(profile.home)
    session.model = ""
    if not session.watch.chosen:
        session.watch = SkinWatch(session.home, active_name(session.home))
        session.look = Look(load_active(session.home), session.look.terminal)
        face.relook(session.look)
    face.say(f"This shell works on {profile.name} now.")


async def _quit(session: Session, line: Line, face: Face) -> None:
    face.leave()


_VERBS: dict[str, Callable[[Session, Line, Face], Awaitable[None]]] = {
    "help": _help,
    "login": _login,
    "logout": _logout,
    "status": _status,
    "update": _update,
    "model": _model,
    "skin": _skin,
    "profile": _profile,
    "quit": _quit,
}


def config_trouble(session: Session) -> str:
    """What is wrong with the config file and how to mend it; empty when it can be read."""
    try:
        read_config(session.home)
    except ConfigError as error:
        return error.diagnostics()
    return ""


def facts_for(session: Session) -> StatusFacts:
    """What the status bar shows. Reads files and asks one socket; call it in a thread. Never fails."""
    from nedura.profiles import Profile

    profile = Profile(name=session.profile, home=session.home)
    return StatusFacts(
        profile=profile.name,
        account=account_of(profile),
        model=session.model or model_of(profile),
        gateway=str(gateway_of(profile)["gateway_version"] or ""),
        owed=owed_now(session.root),
        busy=session.busy,
    )
