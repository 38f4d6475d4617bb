"""`yukta tap`: a look at the messages that go over an edge.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="tap")
@click.argument("execution_id", metavar="ID")
@click.argument("edge", metavar="SOURCE:TARGET")
@click.option("--port", metavar="PORT", help="The port of the edge, where several are meant.")
@click.option("-n", "count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--max-per-sec", type=click.IntRange(1, 100), default=5, help="At most. (5)")
@click.option(
    "--max-bytes", type=click.IntRange(256, 262_144), default=16_384, help="Cut there. (16384)"
)
@server_options
@common_options
@click.pass_obj
def command(
    console: Console,
    target: Target,
    execution_id: str,
    edge: str,
    port: str | None,
    count: int | None,
    max_per_sec: int,
    max_bytes: int,
) -> int:
    """Show a sample of the messages that go over an edge, until it carries no more.

    Each line is the id and the payload of a message; of a fast edge some are passed over, which
    is said. With --json each line is an object with headers too.
    """
    from yukta_rx.cli.client import checked_id, with_client

    checked_id("ID", execution_id)
    source, _, goes_to = edge.partition(":")
    checked_id("SOURCE", source)
    checked_id("TARGET", goes_to)
    query = [("maxPerSec", str(max_per_sec)), ("maxBytes", str(max_bytes))]
    query += [] if port is None else [("sourcePort", checked_id("--port", port))]
    path = f"/api/executions/{execution_id}/edges/{source}/{goes_to}/tap"

    async def work(client: Client) -> int:
        await _follow(console, client, path, query, count)
        return 0

    return with_client(target, work)


async def _follow(
    console: Console, client: Client, path: str, query: Query, count: int | None
) -> None:
    import json
    from contextlib import aclosing

    from yukta_rx.cli.follow import Follower

    shown = 0
    follower = Follower(client, console, path, query, live=True)
    async with aclosing(follower.batches()) as batches:
        async for batch in batches:
            for event in batch:
                if event.type == "tap.end":
                    return
                _write(console, json.loads(event.data), event.data.encode())
                shown += 1
                if shown == count:
                    return
            console.flush()


def _write(console: Console, message: dict[str, Any], text: bytes) -> None:
    from yukta_rx.model.codec import dumps_plain

    if console.as_json:
        console.result(text)
        return
    if message["skipped"]:
        console.line(f"({message['skipped']} messages passed unseen)")
    payload = message["payload"]
    # A text that was cut is the beginning of JSON already.
    cut = message["truncated"] and isinstance(payload, str)
    body = f"{payload}…" if cut else dumps_plain(payload).decode()
    console.line(f"{message['messageId']} {body}")
