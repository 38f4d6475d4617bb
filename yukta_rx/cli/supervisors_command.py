"""`yukta supervisors`: who steers on its own, and the switches.  Feature: CTL-07."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import Console
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.target import Target


@click.group(name="supervisors", invoke_without_command=True)
@server_options
@common_options
@click.pass_context
def command(ctx: click.Context, target: Target) -> int | None:
    """List supervisors and reviewers; `set ID` switches one on or off, or bounds it."""
    if ctx.invoked_subcommand is not None:
        return None
    console = ctx.ensure_object(Console)

    async def work(client: Client) -> int:
        from yukta_rx.model.codec import dumps_plain

        shown = (await client.get("/api/supervisors")).json()["items"]
        if console.as_json:
            for one in shown:
                console.result(dumps_plain(one))
        else:
            for line in _lines(shown):
                console.line(line)
        return 0

    return _with_client(target, work)


@command.command(name="set")
@click.argument("supervisor_id", metavar="ID")
@click.option("--enabled/--disabled", default=None, help="The switch: --disabled stops it at once.")
@click.option("--dry-run/--no-dry-run", default=None, help="Only record its commands.")
@click.option(
    "--rate", type=click.IntRange(min=1), metavar="N", help="Commands per second that it may send."
)
@server_options
@common_options
@click.pass_obj
def set_(
    console: Console,
    target: Target,
    supervisor_id: str,
    enabled: bool | None,
    dry_run: bool | None,
    rate: int | None,
) -> int:
    """Switch a supervisor on or off, or bound it."""
    from yukta_rx.cli.client import checked_id

    path = f"/api/supervisors/{checked_id('ID', supervisor_id)}"
    named = {"enabled": enabled, "dryRun": dry_run, "maxCommandsPerSecond": rate}
    body = {name: value for name, value in named.items() if value is not None}
    if not body:
        raise click.UsageError("say what to set: --enabled, --disabled, --dry-run, --rate, ...")

    async def work(client: Client) -> int:
        from yukta_rx.model.codec import dumps_plain

        shown = (await client.send("PUT", path, body=body)).json()
        if console.as_json:
            console.result(dumps_plain(shown))
        else:
            for line in _lines([shown]):
                console.line(line)
        return 0

    return _with_client(target, work)


def _with_client(target: Target, work: Any) -> int:
    from yukta_rx.cli.client import with_client

    return with_client(target, work)


def _lines(shown: list[dict[str, Any]]) -> Iterator[str]:
    from yukta_rx.cli.texts import columns

    rows = [("ID", "KIND", "STATE", "RATE", "COMMANDS", "LOST", "LAST ERROR")]
    rows += [
        (
            str(one["id"]),
            "reviewer" if one["kind"] == "CONTROL_PLANE" else "supervisor",
            _state(one),
            "" if one["maxCommandsPerSecond"] is None else f"{one['maxCommandsPerSecond']}/s",
            " ".join(f"{outcome}={n}" for outcome, n in sorted(one["counts"].items())),
            str(one["droppedEvents"] or ""),
            " ".join(str(one.get("lastError") or "").split()),
        )
        for one in shown
    ]
    yield from columns(rows)


def _state(one: dict[str, Any]) -> str:
    words = [str(one.get("state") or "").lower()]
    words += ["dry run"] if one["dryRun"] else []
    words += ["external"] if one["external"] else []
    return ", ".join(word for word in words if word)
