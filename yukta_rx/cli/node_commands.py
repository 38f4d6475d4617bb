"""`yukta skip`, `unskip` and `break`: steering that only a node has. Feature: CTL-02."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.steer_commands import send
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

F = TypeVar("F", bound=Callable[..., Any])


def _of_node(command: F) -> F:
    """Add what all three take: the run, the node, a reason, the server."""
    added: Callable[..., Any] = click.pass_obj(command)
    for option in (
        common_options,
        server_options,
        click.option("--reason", metavar="TEXT", help="Goes into the audit."),
        click.argument("node"),
        click.argument("execution_id", metavar="ID"),
    ):
        added = option(added)
    return added  # type: ignore[return-value]


@click.command(name="skip")
@_of_node
def skip(console: Console, target: Target, execution_id: str, node: str, reason: str | None) -> int:
    """Send messages round the plugin of a processor, from the next one on."""
    return send(console, target, "skip", execution_id, node, reason)


@click.command(name="unskip")
@_of_node
def unskip(
    console: Console, target: Target, execution_id: str, node: str, reason: str | None
) -> int:
    """Send messages into the plugin of a processor again."""
    return send(console, target, "skip", execution_id, node, reason, method="DELETE")


@click.command(name="break")
@_of_node
@click.argument("where", metavar="[PART=TEXT]", required=False)
@click.option("--clear", is_flag=True, help="Clear the breakpoints of the node.")
def break_(
    console: Console,
    target: Target,
    execution_id: str,
    node: str,
    reason: str | None,
    where: str | None,
    clear: bool,
) -> int:
    """Hold a node before each message of which a part equals a text, or before each message.

    The part is `payload`, `payload.some.path`, `metadata.key` or `id`.
    """
    if clear:
        if where is not None:
            raise click.UsageError("--clear takes no PART=TEXT: it clears all of the node")
        return send(console, target, "breakpoint", execution_id, node, reason, method="DELETE")
    fields = {}
    if where is not None:
        part, equals, text = where.partition("=")
        if not equals:
            raise click.UsageError(f"`{where}` is not PART=TEXT, such as payload.n=3")
        fields = {"expression": part, "equals": text}
    return send(console, target, "breakpoint", execution_id, node, reason, (), **fields)
