"""`yukta apply` and `yukta diff`: a folder becomes the workflows of a server.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.folders import SessionFiles
    from yukta_rx.cli.plans import SessionPlan
    from yukta_rx.cli.target import Target

F = TypeVar("F", bound=Callable[..., Any])


def _folder(command: F) -> F:
    """Add what both take: the folder, how it is read, the server."""
    added: Callable[..., Any] = click.pass_obj(command)
    for option in (
        common_options,
        server_options,
        click.option(
            "--prune", is_flag=True, help="Also remove workflows that the folder does not have."
        ),
        click.option(
            "--session", metavar="SESSION", help="Everything in the folder is of this session."
        ),
        click.argument("folder", metavar="DIR"),
    ):
        added = option(added)
    return added  # type: ignore[return-value]


@click.command(name="apply")
@_folder
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("-y", "--yes", is_flag=True, help="Remove without asking.")
def command(
    console: Console,
    target: Target,
    folder: str,
    session: str | None,
    prune: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Store the workflows of a folder on a server: all of them, or none if one is refused.

    Each sub-folder is a session; its `_session.json` has the settings, and files in DIR itself
    are of the session `default`. Shows what changes, and asks before it removes anything.
    """
    from yukta_rx.cli.client import with_client

    sessions = _read(folder, session)

    async def work(client: Client) -> int:
        from yukta_rx.cli.plans import make_plan, send

        plans = await make_plan(client, sessions, prune=prune)
        nothing = all(plan.empty for plan in plans)
        _show(console, plans)
        if not (dry_run or nothing):
            removed = [f"{p.session_id}/{name}" for p in plans for name in p.removed]
            if removed and not yes:
                _confirm(console, removed)
            etags = {plan.session_id: plan.etag for plan in plans}
            await send(client, sessions, etags, prune=prune)
        if not console.as_json:
            done = "nothing to change" if nothing else "applied"
            console.say(f"yukta: {'not applied: --dry-run' if dry_run and not nothing else done}")
        return 0

    return with_client(target, work)


@click.command(name="diff")
@_folder
def diff(console: Console, target: Target, folder: str, session: str | None, prune: bool) -> int:
    """Show what `apply` would change; exits with 0 if nothing, with 1 if something would."""
    from yukta_rx.cli.client import with_client

    sessions = _read(folder, session)

    async def work(client: Client) -> int:
        from yukta_rx.cli.plans import make_plan

        plans = await make_plan(client, sessions, prune=prune)
        _show(console, plans)
        return 0 if all(plan.empty for plan in plans) else 1

    return with_client(target, work)


def _read(folder: str, session: str | None) -> list[SessionFiles]:
    from yukta_rx.cli.client import checked_id
    from yukta_rx.cli.folders import read_folder

    return read_folder(folder, None if session is None else checked_id("--session", session))


def _show(console: Console, plans: list[SessionPlan]) -> None:
    from yukta_rx.model.codec import dumps_plain

    for plan in plans:
        if console.as_json:
            console.result(dumps_plain(plan.as_dict()))
            continue
        for line in plan.lines():
            sign = line.strip()[:1]
            console.line(line, {"+": "green", "-": "red", "~": "yellow"}.get(sign))
    console.flush()


def _confirm(console: Console, removed: list[str]) -> None:
    """Ask whether to go on.

    Raises:
        CliError: nobody can be asked, or the answer is no.
    """
    what = ", ".join(removed)
    if console.as_json or not sys.stdin.isatty():
        raise CliError(f"this removes {what}: -y says that it may", exit_code=EXIT_USAGE)
    if not click.confirm(f"yukta: remove {what}?", err=True):
        raise CliError("not applied")
