"""`yukta ls`: the runs of a server, the newest first.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="ls")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([str(status) for status in TaskStatus], case_sensitive=False),
    metavar="STATUS",
    help="Only runs in this status; may be repeated.",
)
@click.option("-n", "count", type=click.IntRange(min=1), default=20, help="At most so many. (20)")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, statuses: tuple[str, ...], count: int) -> int:
    """List the runs of a server, the newest first; --json gives a line of JSON for each."""
    from yukta_rx.cli.client import with_client

    async def work(client: Client) -> int:
        return await _list(console, client, [("status", status) for status in statuses], count)

    return with_client(target, work)


async def _list(console: Console, client: Client, query: list[tuple[str, str]], count: int) -> int:
    from yukta_rx.cli import texts
    from yukta_rx.cli.reading import PAGE, pages
    from yukta_rx.model.codec import dumps_plain

    found: list[dict[str, Any]] = []
    async for page in pages(client, "/api/executions", query, size=min(count, PAGE)):
        found += page["items"]
        if len(found) >= count:
            break
    if console.as_json:
        for run in found[:count]:
            console.result(dumps_plain(run))
    else:
        for line in texts.runs(found[:count]):
            console.line(line)
    return 0
