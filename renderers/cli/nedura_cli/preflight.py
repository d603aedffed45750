"""What `update` may finish before it updates anything: metadata flags, the plan, the check (facts/update.md 1.3)."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from nedura.homes import process_home, root_home
from nedura.product import NEDURA

if TYPE_CHECKING:
    from nedura_cli.output import Output

__all__ = ["update"]


def update(args: argparse.Namespace, output: Output) -> int:
    """Finish a preflight form, or go on to the update itself."""
    _one_form(args)
    if args.install_id:
        return _install_id(output)
    if args.set_channel is not None:
        return _set_channel(args.set_channel, output)
    if args.plan:
        return _plan(args, output)
    if args.check:
        return _check(args, output)
    from nedura_cli.update import update as run_update

    return run_update(args, output)


def _one_form(args: argparse.Namespace) -> None:
    """Refuse two forms at once: one of them would be left out without a word, or act although the other changes nothing."""
    forms = ("install_id", "set_channel", "plan", "check", "rollback")
    given = [f"--{form.replace('_', '-')}" for form in forms if getattr(args, form) not in (None, False)]
    if len(given) > 1:
        from nedura.errors import UsageError

        raise UsageError(f"{' and '.join(given)} cannot go together.", advice="Say one at a time.")


def _possible(args: argparse.Namespace) -> None:
    """Refuse what the update itself would refuse: a plan or a check of a typing error would be about something else."""
    from nedura.update import UpdateOptions
    from nedura.update.options_check import check_options

    options = UpdateOptions(
        branch=args.branch,
        channel=args.channel,
        deadline=args.deadline,
        with_backup=args.with_backup,
        wheels=args.wheels,
    )
    check_options(options, NEDURA)


def _install_id(output: Output) -> int:
    from nedura.errors import RefusedError
    from nedura.update import find_subject

    subject = find_subject(root_home(process_home()), NEDURA, dict(os.environ))
    if subject.install is None:
        raise RefusedError("There is no install here.")
    where = str(subject.checkout or subject.install.folder)
    output.line(f"{subject.install.install_id}  {where}")
    output.record(
        {
            "kind": "install_id",
            "install_id": subject.install.install_id,
            "path": where,
            "layout": subject.layout,
        }
    )
    return 0


def _set_channel(name: str, output: Output) -> int:
    from nedura.update import set_channel

    install_id = set_channel(root_home(process_home()), name, NEDURA, dict(os.environ))
    output.line(f"Install {install_id} follows channel {name} from the next update on.")
    output.record({"kind": "channel", "install_id": install_id, "channel": name})
    return 0


def _plan(args: argparse.Namespace, output: Output) -> int:
    from nedura import plan_update
    from nedura.update.source.channels import check_followed
    from nedura.update.state.snapshot_mode import asked_mode

    _possible(args)
    saves = asked_mode(no_backup=args.no_backup, backup=args.backup)
    found = asyncio.run(
        plan_update(deadline=args.deadline, branch=args.branch, channel=args.channel, saves=saves)
    )
    check_followed(found.layout, args.branch, args.channel)
    output.event(found)
    return 0


def _check(args: argparse.Namespace, output: Output) -> int:
    """Exit 0 when current, behind or somebody else's; 1 when nobody could be asked."""
    from nedura.errors import NeduraError
    from nedura.update import check_and_remember

    _possible(args)
    try:
        result = check_and_remember(
            root_home(process_home()), NEDURA, dict(os.environ), branch=args.branch, channel=args.channel
        )
    except NeduraError:
        if args.passive:
            return 1
        raise
    if not args.passive:
        output.event(result)
    return 0
