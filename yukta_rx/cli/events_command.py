"""`yukta events`: what happens in all runs.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="events")
@click.option("-f", "--follow", is_flag=True, help="Show what happens from now on.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Such as node.status or node.*."
)
@click.option("--execution", "executions", multiple=True, metavar="ID", help="Only of this run.")
@server_options
@common_options
@click.pass_obj
def command(
    console: Console,
    target: Target,
    follow: bool,
    types: tuple[str, ...],
    executions: tuple[str, ...],
) -> int:
    """Print the events that the server still keeps, or with -f those that come.

    Filters may be repeated. A connection that breaks is made again and goes on behind the last
    event; events that are missing nevertheless are said on stderr. With --json each event is a
    line of JSON.
    """
    from yukta_rx.cli.client import checked_id, with_client

    query = [("type", text) for text in types]
    query += [("executionId", checked_id("--execution", text)) for text in executions]

    async def work(client: Client) -> int:
        await (_follow if follow else _read)(console, client, query)
        return 0

    return with_client(target, work)


async def _read(console: Console, client: Client, query: Query) -> None:
    from yukta_rx.cli.reading import pages, say_gap
    from yukta_rx.model.codec import dumps_plain

    async for page in pages(client, "/api/events", query):
        say_gap(console, page)
        for event in page["items"]:
            _write(console, event, dumps_plain(event))


async def _follow(console: Console, client: Client, query: Query) -> None:
    import json
    from contextlib import aclosing

    from yukta_rx.cli.follow import Follower

    follower = Follower(client, console, "/api/events/stream", query, live=True)
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            for event in batch:
                _write(console, json.loads(event.data), event.data.encode())
            console.flush()


def _write(console: Console, event: dict[str, Any], text: bytes) -> None:
    from yukta_rx.cli import texts
    from yukta_rx.cli.views import STYLES

    if console.as_json:
        console.result(text)
        return
    data = event.get("data")
    status = data.get("status") if isinstance(data, dict) else None
    console.line(texts.event(event), STYLES.get(str(status)))
