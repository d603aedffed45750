"""`nedura skin ...`"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from nedura.homes import process_home
from nedura.skin_data import COLOR_KEYS
from nedura.skin_files import check_skin_name, new_skin, save_choice, set_color, usable_skin
from nedura.skins import Skin, active_name, broken_skins, list_skins, load_active, load_skin
from nedura.text import clean
from nedura_cli.elements import StatusFacts, answer_box, banner, heading, status_parts
from nedura_cli.look import Look, find_look
from nedura_cli.output import Output

__all__ = ["list", "new", "preview", "set", "show", "use"]


def list(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Print every skin."""
    home = process_home()
    entries, active = list_skins(home), load_active(home).name
    output.record(
        {
            "kind": "skins",
            "active": active,
            "skins": [
                {
                    "name": entry.name,
                    "description": entry.description,
                    "source": str(entry.source) if entry.source else None,
                    "replaces": entry.replaces,
                }
                for entry in entries
            ],
        }
    )
    rows = [
        (
            "*" if entry.name == active else "",
            entry.name,
            "built-in" if entry.source is None else str(entry.source),
            entry.description,
        )
        for entry in entries
    ]
    output.table(("", "skin", "source", "description"), rows)
    for name, reason in broken_skins(home):
        output.remark(f"not usable: {name} ({clean(reason, 200)})")
    return 0


def use(args: argparse.Namespace, output: Output) -> int:
    """Choose a skin and save the choice."""
    save_choice(process_home(), args.name)
    _warn(output, load_skin(process_home(), args.name))
    output.record({"kind": "skin_used", "name": args.name})
    output.line(f"The skin is {args.name} now.")
    return 0


def set(args: argparse.Namespace, output: Output) -> int:  # noqa: A001 - the verb's name
    """Change one colour."""
    home = process_home()
    name, path = set_color(home, args.skin or active_name(home), args.key, args.value)
    output.record(
        {"kind": "skin_set", "name": name, "key": args.key, "value": args.value.lower(), "path": str(path)}
    )
    output.line(f"{args.key} of {name} is {args.value.lower()} now ({path}).")
    return 0


def new(args: argparse.Namespace, output: Output) -> int:
    """Write a commented template."""
    path = new_skin(process_home(), args.name, args.base)
    output.record({"kind": "skin_made", "name": path.stem, "path": str(path)})
    output.line(f"Wrote {path}. Use it with: nedura skin use {path.stem}")
    return 0


def show(args: argparse.Namespace, output: Output) -> int:
    """Preview every element of a skin."""
    home = process_home()
    skin = usable_skin(home, check_skin_name(args.name)) if args.name else load_active(home)
    _warn(output, skin)
    output.record(_record(skin))
    if not output.as_json:
        look = find_look(output.stdout, plain=output.plain, skin=skin)
        console = look.console(output.stdout)
        console.print(preview(look, console.width))
    return 0


def _warn(output: Output, skin: Skin) -> None:
    for warning in skin.warnings:
        output.remark(f"nedura: {warning}.")


def _record(skin: Skin) -> dict[str, Any]:
    fields = attrs.asdict(skin)
    return {"kind": "skin", **fields, "source": str(skin.source) if skin.source else None}


def preview(look: Look, width: int) -> RenderableType:
    """Every element as the surfaces draw it."""
    facts = StatusFacts(
        profile="default", account="alice@example.com", model="hermes-4", gateway="1.2.3", owed="restart owed"
    )
    return Group(
        banner(look, facts, width),
        "",
        heading(look, "Waiting and thinking"),
        _waiting(look),
        "",
        heading(look, "Answer"),
        Text.assemble(
            Text(look.fit(look.skin.branding.prompt_symbol) + " ", style=look.style("prompt", bold=True)),
            "what you typed",
        ),
        look.text(look.tool_line("web_search", "looking something up"), "banner_dim"),
        look.text(look.tool_line("terminal", "running a command"), "banner_dim"),
        answer_box(look, "An answer in its box.", width),
        "",
        heading(look, "Words"),
        *(
            look.text(f"{key.removeprefix('ui_')}: a line of this kind", key)
            for key in COLOR_KEYS
            if key.startswith("ui_")
        ),
        look.text(look.skin.branding.help_header, "banner_title", bold=True),
        look.text(look.skin.branding.goodbye, "banner_text"),
        "",
        heading(look, "Status bar"),
        _bar(look, facts, width),
        "",
        heading(look, "Colours"),
        *_swatches(look, width),
    )


def _waiting(look: Look) -> Text:
    verbs, waiting, thinking = look.verbs(), look.faces(), look.faces(thinking=True)
    lines = [
        Text.assemble(
            look.text(f"{next(waiting)} ", "ui_accent"), look.text("waiting for an answer", "banner_dim")
        )
    ]
    lines += [
        Text.assemble(look.text(f"{next(thinking)} ", "ui_accent"), look.text(next(verbs), "banner_dim"))
        for _ in range(4)
    ]
    return Text("\n").join(lines)


def _bar(look: Look, facts: StatusFacts, width: int) -> Text:
    parts = [
        Text(f" {text} ", style=look.style(key, on="status_bar_bg"))
        for key, text in status_parts(look, facts, width)
    ]
    return Text(look.fit("│"), style=look.style("status_bar_dim", on="status_bar_bg")).join(parts)


def _swatches(look: Look, width: int) -> Sequence[Text]:
    block = "" if look.terminal.plain else "██ " if look.terminal.unicode else "## "
    column = max(len(key) for key in COLOR_KEYS) + 1
    column = min(column, max(8, width - len(block) - len("#rrggbb") - 1))
    below = "\n" + " " * (len(block) + column)  # a name that leaves no room has its colour on the next line
    return [
        Text.assemble(
            Text(block, style=look.style(key)),
            look.text(f"{key:<{column}}", "banner_dim"),
            below if len(key) >= column else "",
            look.text(look.skin.color(key, light=look.terminal.light), "banner_dim"),
        )
        for key in COLOR_KEYS
    ]
