"""`yukta logs`: the lines that the nodes of a run write.  Feature: OBS-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="logs")
@click.argument("execution_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--node", metavar="NODE", help="Only lines of this node.")
@server_options
@common_options
@click.pass_obj
def command(
    console: Console, target: Target, execution_id: str, follow: bool, node: str | None
) -> int:
    """Print the log lines of a run behind the names of their nodes.

    With --json each line is an object with time, stream, level and cursor. What the server no
    longer keeps is said on stderr.
    """
    from yukta_rx.cli.client import checked_id, with_client

    checked_id("ID", execution_id)
    query = [] if node is None else [("nodeId", checked_id("--node", node))]

    async def work(client: Client) -> int:
        if follow:
            await _follow(console, client, execution_id, query)
        else:
            await _read(console, client, execution_id, query)
        return 0

    return with_client(target, work)


async def _read(console: Console, client: Client, execution_id: str, query: Query) -> None:
    from yukta_rx.cli.reading import pages, say_gap
    from yukta_rx.model.codec import dumps_plain

    async for page in pages(client, f"/api/executions/{execution_id}/logs", query):
        say_gap(console, page)
        for line in page["items"]:
            _write(console, line, dumps_plain(line))


async def _follow(console: Console, client: Client, execution_id: str, query: Query) -> None:
    import json
    from contextlib import aclosing

    from yukta_rx.cli.follow import Follower
    from yukta_rx.cli.reading import ended

    path = f"/api/executions/{execution_id}"

    async def over() -> bool:
        return ended((await client.get(path)).json())

    follower = Follower(client, console, f"{path}/logs", query, ended=over)
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            for event in batch:
                _write(console, json.loads(event.data), event.data.encode())
            console.flush()


def _write(console: Console, line: dict[str, Any], text: bytes) -> None:
    from yukta_rx.cli import texts

    if console.as_json:
        console.result(text)
    else:
        console.line(texts.log_line(line), "red" if line["stream"] == "stderr" else None)
