"""`yukta status`: one run, now or until its end.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="status")
@click.argument("execution_id", metavar="ID")
@click.option("--watch", is_flag=True, help="Show progress until the run has ended.")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, execution_id: str, watch: bool) -> int:
    """Show a run and its nodes.

    With --watch a terminal shows a live table, anything else gets a line for each change of
    status, and --json a line with each snapshot. Then exits with 0 if the run ended SUCCESS and 1
    if it ended otherwise.
    """
    from yukta_rx.cli.client import checked_id, with_client

    checked_id("ID", execution_id)

    async def work(client: Client) -> int:
        if watch:
            from yukta_rx.cli.watch import watch_run

            return await watch_run(console, client, execution_id)
        return await _show(console, client, execution_id)

    return with_client(target, work)


async def _show(console: Console, client: Client, execution_id: str) -> int:
    from yukta_rx.cli import texts
    from yukta_rx.model.codec import dumps_plain

    query = [("include", "nodes,edges")]
    detail = (await client.get(f"/api/executions/{execution_id}", query)).json()
    if console.as_json:
        console.result(dumps_plain(detail))
    else:
        for line in texts.run(detail):
            console.line(line)
    return 0
