"""`yukta skip`, `unskip`, `break` and `held`: steering that only a node has. Feature: CTL-02."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.steer_commands import send
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
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


_WHERE = re.compile(r"(.+?)(!=|=|<|>|~| in |\?$)(.*)", re.DOTALL)
_OPS = {"!=": "!=", "<": "<", ">": ">", "~": "matches", " in ": "in"}


@click.command(name="break")
@_of_node
@click.argument("where", metavar="[PART=TEXT]", required=False)
@click.option("--when", metavar="CONDITION", help="Hold messages for which it is true.")
@click.option("--clear", is_flag=True, help="Clear the breakpoints of the node.")
def break_(
    console: Console,
    target: Target,
    execution_id: str,
    node: str,
    reason: str | None,
    where: str | None,
    when: str | None,
    clear: bool,
) -> int:
    """Hold a node before each message of which a part is as said, or before each message.

    The part is `payload`, `payload.some.path`, `metadata.key` or `id`. Write `PART=TEXT`,
    `PART!=TEXT`, `PART<VALUE`, `PART>VALUE`, `PART~PATTERN` (a regular expression), `PART in A,B`
    or `PART?` (it is there); quote what the shell would read.
    """
    if clear:
        if where is not None or when is not None:
            raise click.UsageError("--clear takes no PART=TEXT: it clears all of the node")
        return send(console, target, "breakpoint", execution_id, node, reason, method="DELETE")
    fields: dict[str, Any] = {} if when is None else {"when": when}
    if where is not None:
        fields |= _fields(where)
    return send(console, target, "breakpoint", execution_id, node, reason, (), **fields)


def _fields(where: str) -> dict[str, Any]:
    from yukta_rx.errors import YuktaError
    from yukta_rx.model.codec import loads_external

    found = _WHERE.fullmatch(where)
    if found is None:
        raise click.UsageError(f"`{where}` is not PART=TEXT, such as payload.n=3")
    part, sign, text = found.groups()
    part = part.strip()
    if sign == "=":
        return {"expression": part, "equals": text}
    if sign == "?":
        return {"expression": part, "op": "exists"}
    value: Any = text
    if sign in ("<", ">", " in "):
        try:
            value = loads_external(text)
        except YuktaError:
            value = text.strip()
    if sign == " in " and not isinstance(value, list):
        value = [choice.strip() for choice in text.split(",")]
    return {"expression": part, "op": _OPS[sign], "value": value}


@click.command(name="held")
@_of_node
@click.argument("action", type=click.Choice(["show", "release", "drop", "edit"]), default="show")
@click.option("--payload", metavar="JSON", help="What edit puts in place; `@FILE` reads a file.")
def held(
    console: Console,
    target: Target,
    execution_id: str,
    node: str,
    reason: str | None,
    action: str,
    payload: str | None,
) -> int:
    """Show the message that a breakpoint holds, let it go, drop it, or edit its payload."""
    from yukta_rx.cli.inputs import read_payload

    if (action == "edit") is (payload is None):
        raise click.UsageError("edit takes --payload, and nothing else does")
    if action == "edit":
        given = {"payload": read_payload(payload, ())}
        return send(console, target, "held", execution_id, node, reason, method="PUT", **given)
    if action == "show":
        return _show(console, target, execution_id, node)
    return send(console, target, f"held/{action}", execution_id, node, reason)


def _show(console: Console, target: Target, execution_id: str, node: str) -> int:
    from yukta_rx.cli.client import checked_id, with_client

    run, name = checked_id("ID", execution_id), checked_id("NODE", node)

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.model.codec import dumps_plain

        shown = (await client.get(f"/api/executions/{run}/nodes/{name}/held")).json()
        if console.as_json:
            console.result(dumps_plain(shown))
            return 0
        facts = [("message", shown["id"]), ("held since", shown["since"])]
        facts += [("headers", _json(shown["headers"]))] if shown["headers"] else []
        for line in texts.columns([*facts, ("payload", _json(shown["payload"]))]):
            console.line(line)
        return 0

    return with_client(target, work)


def _json(value: Any) -> str:
    from yukta_rx.model.codec import dumps_plain

    return dumps_plain(value).decode()
