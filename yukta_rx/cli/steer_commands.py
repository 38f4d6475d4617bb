"""`yukta pause`, `resume`, `step` and `stop`: the same words for a run and for one of its nodes.

Features: CTL-01, CTL-02, CTL-03.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

F = TypeVar("F", bound=Callable[..., Any])


def _steering(command: F) -> F:
    """Add what all four take: the run, the node, a reason, the server."""
    added: Callable[..., Any] = click.pass_obj(command)
    for option in (
        common_options,
        server_options,
        click.option("--reason", metavar="TEXT", help="Goes into the audit."),
        click.argument("node", required=False),
        click.argument("execution_id", metavar="ID"),
    ):
        added = option(added)
    return added  # type: ignore[return-value]


@click.command(name="pause")
@_steering
def pause(
    console: Console, target: Target, execution_id: str, node: str | None, reason: str | None
) -> int:
    """Hold the messages of a run or node; what is under way is finished."""
    return send(console, target, "pause", execution_id, node, reason)


@click.command(name="resume")
@_steering
def resume(
    console: Console, target: Target, execution_id: str, node: str | None, reason: str | None
) -> int:
    """Let a paused run or node go on."""
    return send(console, target, "resume", execution_id, node, reason)


@click.command(name="step")
@_steering
@click.option("-n", "count", type=click.IntRange(min=1), default=1, help="So many messages. (1)")
def step(
    console: Console,
    target: Target,
    execution_id: str,
    node: str | None,
    reason: str | None,
    count: int,
) -> int:
    """Let messages through a paused node, or through each node of a paused run."""
    return send(console, target, "step", execution_id, node, reason, [("n", str(count))])


@click.command(name="step-mode")
@click.argument("execution_id", metavar="ID")
@click.argument("switch", type=click.Choice(["on", "off"], case_sensitive=False))
@click.option("--reason", metavar="TEXT", help="Goes into the audit.")
@server_options
@common_options
@click.pass_obj
def step_mode(
    console: Console, target: Target, execution_id: str, switch: str, reason: str | None
) -> int:
    """Pause a run so that it moves only when stepped, or let it go on."""
    enabled = [("enabled", "true" if switch == "on" else "false")]
    return send(console, target, "step-mode", execution_id, None, reason, enabled, method="PUT")


@click.command(name="stop")
@_steering
@click.option(
    "--mode",
    type=click.Choice(["DRAIN", "CANCEL", "KILL"], case_sensitive=False),
    default="DRAIN",
    help="DRAIN finishes what is under way (default), CANCEL does not, KILL does not wait either.",
)
def stop(
    console: Console,
    target: Target,
    execution_id: str,
    node: str | None,
    reason: str | None,
    mode: str,
) -> int:
    """Stop a run or node."""
    return send(console, target, "stop", execution_id, node, reason, [("mode", mode)])


def send(
    console: Console,
    target: Target,
    verb: str,
    execution_id: str,
    node: str | None,
    reason: str | None,
    query: Query = (),
    *,
    method: str = "POST",
    **fields: Any,
) -> int:
    """Give a run, or one of its nodes, the command `verb` and print what became of it."""
    from yukta_rx.cli.client import checked_id, with_client

    path = f"/api/executions/{checked_id('ID', execution_id)}"
    if node is not None:
        path += f"/nodes/{checked_id('NODE', node)}"
    given = fields if reason is None else {**fields, "reason": reason}
    body: Any = given
    if method == "DELETE":
        # Which has no body.
        query, body = [*query, *given.items()], None

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.model.codec import dumps_plain

        result = (await client.send(method, f"{path}/{verb}", query, body)).json()
        if console.as_json:
            console.result(dumps_plain(result))
        else:
            console.line(texts.command(result))
        return 0

    return with_client(target, work)
