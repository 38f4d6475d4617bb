"""`yukta result`: what reached the terminals of a run.  Feature: OBS-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="result")
@click.argument("execution_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, execution_id: str, follow: bool) -> int:
    """Print the results of a run as JSON lines {"nodeId", "messageId", "payload"}.

    With --json the lines are the items of the results channel, with cursors and ends. A server
    keeps the newest results only; what it no longer has is said on stderr.
    """
    from yukta_rx.cli.client import checked_id, with_client

    checked_id("ID", execution_id)

    async def work(client: Client) -> int:
        run = (await client.get(f"/api/executions/{execution_id}")).json()
        path = f"/api/sessions/{run['sessionId']}/executions/{execution_id}/results"
        writer = _Writer(console)
        if follow:
            await _follow(client, writer, path)
        else:
            await _read(client, writer, path)
        return 0

    return with_client(target, work)


class _Writer:
    """Writes results and says what is missing, once."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.over = False

    def write(self, item: dict[str, Any], text: bytes | None = None) -> None:
        """Write an item; `text` is the JSON that it came as."""
        from yukta_rx.model.codec import dumps_plain

        if item["type"] == "EXECUTION_END":
            self.over = True
        if self.console.as_json:
            self.console.result(dumps_plain(item) if text is None else text)
        elif item["type"] == "RESULT":
            shown = {name: item.get(name) for name in ("nodeId", "messageId", "payload")}
            self.console.result(dumps_plain(shown))


async def _read(client: Client, writer: _Writer, path: str) -> None:
    from yukta_rx.cli.reading import pages, say_gap

    async for page in pages(client, path):
        say_gap(writer.console, page)
        for item in page["items"]:
            writer.write(item)


async def _follow(client: Client, writer: _Writer, path: str) -> None:
    import json
    from contextlib import aclosing

    from yukta_rx.cli.follow import Follower

    async with aclosing(Follower(client, writer.console, path).batches()) as batches:
        async for batch in batches:
            for event in batch:
                writer.write(json.loads(event.data), event.data.encode())
            writer.console.flush()
            if writer.over:
                return
