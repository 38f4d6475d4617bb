"""`yukta restart`, `retry` and `recover`: run again what has run, whole or from a node.

Features: CTL-04, DUR-03.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from yukta_rx.cli.options import common_options, payload_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

F = TypeVar("F", bound=Callable[..., Any])


def _starting(command: F) -> F:
    """Add what all three take beside the run: whether to wait, a reason, the server."""
    added: Callable[..., Any] = click.pass_obj(command)
    for option in (
        common_options,
        server_options,
        click.option("--wait", is_flag=True, help="Wait for the end of the new run."),
        click.option("--reason", metavar="TEXT", help="Goes into the audit."),
    ):
        added = option(added)
    return added  # type: ignore[return-value]


@click.command(name="restart")
@click.argument("execution_id", metavar="ID")
@click.argument("node", required=False)
@click.option(
    "--version",
    metavar="VERSION",
    help="Of the workflow: same (default), current, or the number of a saved one.",
)
@payload_options
@_starting
def restart(
    console: Console,
    target: Target,
    execution_id: str,
    node: str | None,
    version: str | None,
    payload: str | None,
    members: tuple[str, ...],
    reason: str | None,
    wait: bool,
) -> int:
    """Run a run again, or one of its nodes and all behind it, and print the id of the new run.

    A whole run gets the same start payload unless --payload or --set is given; if it is live, it is
    cancelled first. From a node on, what was recorded of the nodes before it is replayed, and a
    live run goes on.
    """
    from yukta_rx.cli.inputs import read_payload

    body: dict[str, Any] = {} if version is None else {"version": version}
    if payload is not None or members:
        if node is not None:
            raise click.UsageError("--payload and --set are for a whole run, not for a node")
        body["payload"] = read_payload(payload, members)
    return _send(console, target, "restart", execution_id, node, body, reason, wait)


@click.command(name="retry")
@click.argument("execution_id", metavar="ID")
@click.argument("node")
@_starting
def retry(
    console: Console, target: Target, execution_id: str, node: str, reason: str | None, wait: bool
) -> int:
    """Run a failed node and all behind it again, and print the id of the new run."""
    return _send(console, target, "retry", execution_id, node, {}, reason, wait)


@click.command(name="recover")
@click.argument("execution_id", metavar="ID")
@click.option(
    "--version",
    metavar="VERSION",
    help="Of the workflow: same (default), current, or the number of a saved one.",
)
@click.option("--rerun", is_flag=True, help="Begin nodes that have changed anew.")
@click.option("--plan", is_flag=True, help="Only show what would become of each node.")
@_starting
def recover(
    console: Console,
    target: Target,
    execution_id: str,
    version: str | None,
    rerun: bool,
    plan: bool,
    reason: str | None,
    wait: bool,
) -> int:
    """Go on with a run that a crash ended, and print the id of the new run.

    Nodes that had finished are not run again; of the others, what they had emitted is replayed,
    and only the messages that they had not finished are worked on.
    """
    if plan:
        return _plan(console, target, execution_id, version, rerun)
    body: dict[str, Any] = {} if version is None else {"version": version}
    if rerun:
        body["rerun"] = True
    return _send(console, target, "recover", execution_id, None, body, reason, wait)


def _plan(
    console: Console, target: Target, execution_id: str, version: str | None, rerun: bool
) -> int:
    from yukta_rx.cli.client import checked_id, with_client

    path = f"/api/executions/{checked_id('ID', execution_id)}/recover"
    query = [] if version is None else [("version", version)]
    if rerun:
        query.append(("rerun", "true"))

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.model.codec import dumps_plain

        shown = (await client.get(path, query)).json()
        if console.as_json:
            console.result(dumps_plain(shown))
            return 0
        titles = ("NODE", "ACTION", "MESSAGES", "INPUTS")
        rows = [
            (node["nodeId"], node["action"], str(node["messages"]), str(node["inputs"]))
            for node in shown["nodes"]
        ]
        for line in texts.columns([titles, *rows]):
            console.result(line.encode())
        return 0

    return with_client(target, work)


def _send(
    console: Console,
    target: Target,
    verb: str,
    execution_id: str,
    node: str | None,
    body: dict[str, Any],
    reason: str | None,
    wait: bool,
) -> int:
    from yukta_rx.cli.client import checked_id, with_client

    path = f"/api/executions/{checked_id('ID', execution_id)}"
    if node is not None:
        path += f"/nodes/{checked_id('NODE', node)}"
    given = body if reason is None else {**body, "reason": reason}

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.cli.start_command import say_waited
        from yukta_rx.model.codec import dumps_plain

        answer = await client.post(f"{path}/{verb}", body=given)
        result = answer.json()
        if answer.status != 201:
            # A reviewer holds the command.
            shown = dumps_plain(result) if console.as_json else texts.command(result).encode()
            console.result(shown)
            return 0
        started = str(result["executionId"])
        console.result(dumps_plain(result) if console.as_json else started.encode())
        console.flush()
        return await say_waited(console, client, started) if wait else 0

    return with_client(target, work)
