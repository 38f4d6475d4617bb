"""`yukta limits`, `queue` and `priority`: who may run, who waits, and who is next.

Features: ADM-01, ADM-03.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

_LIMITS = "/api/scheduler/limits"


@click.group(name="limits", invoke_without_command=True)
@server_options
@common_options
@click.pass_context
def limits(ctx: click.Context, target: Target) -> None:
    """Show how many runs may go at once and how many do; `set` changes it."""
    if ctx.invoked_subcommand is None:
        from yukta_rx.cli.client import with_client

        console: Console = ctx.obj

        async def work(client: Client) -> int:
            return _show_limits(console, (await client.get(_LIMITS)).json())

        with_client(target, work)


@limits.command(name="set")
@click.option("--max", "total", type=click.IntRange(min=0), help="Runs in all; 0 is no limit.")
@click.option("--per-workflow", type=click.IntRange(min=0), help="Runs of one workflow; 0: any.")
@click.option("--reason", metavar="TEXT", help="Goes into the audit.")
@server_options
@common_options
@click.pass_obj
def set_limits(
    console: Console,
    target: Target,
    total: int | None,
    per_workflow: int | None,
    reason: str | None,
) -> int:
    """Change limits of a server while it runs; what is not given stays."""
    from yukta_rx.cli.client import with_client

    if total is None and per_workflow is None:
        raise CliError("nothing to set: give --max or --per-workflow", exit_code=EXIT_USAGE)

    async def work(client: Client) -> int:
        now = (await client.get(_LIMITS)).json()
        body: dict[str, Any] = {
            "maxConcurrent": now["maxConcurrent"] if total is None else total,
            "perWorkflow": now["perWorkflow"] if per_workflow is None else per_workflow,
        }
        if reason is not None:
            body["reason"] = reason
        result = (await client.send("PUT", _LIMITS, body=body)).json()
        return _show_result(console, result, (await client.get(_LIMITS)).json())

    return with_client(target, work)


@click.command(name="queue")
@server_options
@common_options
@click.pass_obj
def queue(console: Console, target: Target) -> int:
    """List the starts that wait for a slot, the next one first, and what each waits for."""
    from yukta_rx.cli import texts
    from yukta_rx.cli.client import with_client
    from yukta_rx.model.codec import dumps_plain

    async def work(client: Client) -> int:
        items = (await client.get("/api/scheduler/queue")).json()["items"]
        if console.as_json:
            for item in items:
                console.result(dumps_plain(item))
            return 0
        for line in texts.columns(_rows(items)):
            console.line(line)
        return 0

    return with_client(target, work)


@click.command(name="priority")
@click.argument("execution_id", metavar="ID")
@click.argument("priority", type=float, metavar="N")
@click.option("--reason", metavar="TEXT", help="Goes into the audit.")
@server_options
@common_options
@click.pass_obj
def priority(
    console: Console, target: Target, execution_id: str, priority: float, reason: str | None
) -> int:
    """Move a start that waits for a slot; higher goes first. A negative N stands behind `--`."""
    from yukta_rx.cli.client import checked_id, with_client

    path = f"/api/executions/{checked_id('ID', execution_id)}/priority"
    # A whole number stays one.
    number: float = int(priority) if priority.is_integer() else priority
    body: dict[str, Any] = {"priority": number}
    if reason is not None:
        body["reason"] = reason

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.model.codec import dumps_plain

        result = (await client.send("PUT", path, body=body)).json()
        if console.as_json:
            console.result(dumps_plain(result))
        else:
            console.line(texts.command(result))
        return 0

    return with_client(target, work)


def _show_result(console: Console, result: Mapping[str, Any], limits: Mapping[str, Any]) -> int:
    from yukta_rx.model.codec import dumps_plain

    if console.as_json:
        console.result(dumps_plain(result))
        return 0
    if result["outcome"] == "HELD":
        console.say(f"yukta: {result.get('reason') or 'held for a second actor'}", "yellow")
    return _show_limits(console, limits)


def _show_limits(console: Console, limits: Mapping[str, Any]) -> int:
    from yukta_rx.cli import texts
    from yukta_rx.model.codec import dumps_plain

    if console.as_json:
        console.result(dumps_plain(limits))
        return 0
    origin = "configuration" if limits["source"] == "CONFIG" else "a command"
    rows = [
        ("runs at once", f"{limits['running']} of {_most(limits['maxConcurrent'])}"),
        ("per workflow", _most(limits["perWorkflow"])),
        ("per session", _most(limits["perSession"])),
        ("beyond that", "wait" if limits["onLimit"] == "QUEUE" else "refused"),
        ("waiting", f"{limits['queued']} of {limits['queueCapacity']}"),
        ("set by", origin),
    ]
    for line in texts.columns(rows):
        console.line(line)
    return 0


def _most(limit: int) -> str:
    return str(limit) if limit else "any number"


def _rows(items: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    yield ("PLACE", "EXECUTION", "WORKFLOW", "PRIORITY", "SINCE", "WAITS FOR")
    for item in items:
        yield (
            str(item["position"]),
            str(item["executionId"]),
            f"{item['sessionId']}/{item['workflowId']}",
            f"{item['priority']:g}",
            str(item["queuedTime"]),
            f"{item['waitReason']}: {item['detail']}",
        )
