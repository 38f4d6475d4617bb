"""`yukta losses`: what a run lost.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="losses")
@click.argument("execution_id", metavar="ID")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, execution_id: str) -> int:
    """Show what a run lost, by place, node and reason.

    With --json each line is one kind of loss, with the ids of some of the messages. Exits with 0
    also where something was lost.
    """
    from yukta_rx.cli.client import checked_id, with_client
    from yukta_rx.cli.texts import columns
    from yukta_rx.model.codec import dumps_plain

    checked_id("ID", execution_id)

    async def work(client: Client) -> int:
        items = (await client.get(f"/api/executions/{execution_id}/losses")).json()["items"]
        if console.as_json:
            for item in items:
                console.result(dumps_plain(item))
            return 0
        if not items:
            console.line("nothing was lost")
            return 0
        rows = [("PLACE", "NODE", "REASON", "COUNT", "FIRST")]
        for item in items:
            names = (item["place"], item.get("nodeId", ""), item["reason"])
            rows.append((*names, str(item["count"]), next(iter(item["sample"]), "")))
        for line in columns(rows):
            console.line(line)
        return 0

    return with_client(target, work)
