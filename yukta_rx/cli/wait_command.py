"""`yukta wait`: waits for the end of a run.  Feature: OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.console import EXIT_TIMEOUT, CliError
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="wait")
@click.argument("execution_id", metavar="ID")
@click.option("--timeout", metavar="DURATION", help="Wait no longer than this, such as 30s.")
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, execution_id: str, timeout: str | None) -> int:
    """Wait until a run has ended and print its status.

    Exits with 0 if it ended SUCCESS, 1 if it ended otherwise, 124 if it has not ended in time.
    """
    from yukta_rx.cli.client import checked_id, with_client
    from yukta_rx.cli.inputs import read_timeout
    from yukta_rx.cli.reading import say_end, wait_for_end
    from yukta_rx.model.codec import dumps_plain

    checked_id("ID", execution_id)
    seconds = read_timeout(timeout, None)

    async def work(client: Client) -> int:
        detail = await wait_for_end(client, execution_id, seconds)
        if detail is None:
            text = f"run {execution_id} has not ended within {timeout}"
            raise CliError(text, exit_code=EXIT_TIMEOUT, code="timeout")
        console.result(dumps_plain(detail) if console.as_json else detail["status"].encode())
        return say_end(console, detail)

    return with_client(target, work)
