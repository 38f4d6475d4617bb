"""`yukta start`: starts a run on a server.  Features: ADM-01, ADM-02, OBS-01."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options, payload_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="start")
@click.argument("workflow", metavar="SESSION/WORKFLOW")
@payload_options
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="May be repeated.")
@click.option("--priority", type=int, help="Higher starts first when starts have to wait. (0)")
@click.option(
    "--version", "version", type=click.IntRange(min=1), help="Run this version of the workflow."
)
@click.option("--idempotency-key", "key", metavar="KEY", help="A repeat gets the first run back.")
@click.option("--wait", is_flag=True, help="Wait for its end.")
@server_options
@common_options
@click.pass_obj
def command(
    console: Console,
    target: Target,
    workflow: str,
    payload: str | None,
    members: tuple[str, ...],
    labels: tuple[str, ...],
    priority: int | None,
    version: int | None,
    key: str | None,
    wait: bool,
) -> int:
    """Start a run of a workflow on a server and print its id, also if it waits for a slot.

    Ctrl-C while waiting leaves the run alone. Exits with 0 if it was started and, with --wait, if
    it ended SUCCESS; with 1 if it ended otherwise.
    """
    from yukta_rx.cli.client import with_client
    from yukta_rx.cli.inputs import read_payload

    own = {"yukta.priority": priority, "yukta.version": version}
    body = _body(workflow, read_payload(payload, members), labels, own)
    headers = {"Prefer": "respond-async"}
    if key is not None:
        headers["Idempotency-Key"] = _quoted(key)

    async def work(client: Client) -> int:
        return await _start(console, client, body, headers, wait)

    try:
        return with_client(target, work)
    except KeyboardInterrupt:
        if wait and not console.as_json:
            console.say("yukta: no longer waiting; the run is left alone", "yellow")
        raise


async def _start(
    console: Console, client: Client, body: dict[str, Any], headers: dict[str, str], wait: bool
) -> int:
    from yukta_rx.model.codec import dumps_plain

    answer = await client.post("/api/workflow/start", body=body, headers=headers)
    started = answer.json()
    execution_id = str(started["executionId"])
    console.result(dumps_plain(started) if console.as_json else execution_id.encode())
    console.flush()
    if not console.as_json:
        if answer.status == 200:
            console.say("yukta: this idempotency key has started that run before", "yellow")
        elif answer.status == 202:
            place = started.get("queuePosition", 1)
            console.say(f"yukta: it waits for a slot, at place {place} of the queue", "yellow")
    return await say_waited(console, client, execution_id) if wait else 0


async def say_waited(console: Console, client: Client, execution_id: str) -> int:
    """Wait for the end of a run that was just started, and say how it ended; the exit code."""
    from yukta_rx.cli.reading import say_end, wait_for_end
    from yukta_rx.model.codec import dumps_plain

    detail = await wait_for_end(client, execution_id)
    if detail is None:
        raise AssertionError("waiting without a limit ends with the run")
    if console.as_json:
        console.result(dumps_plain(detail))
    else:
        console.say(f"{detail['status']} {detail['sessionId']}/{detail['workflowId']}")
    return say_end(console, detail)


def _body(
    workflow: str, payload: Any, labels: tuple[str, ...], own: dict[str, int | None]
) -> dict[str, Any]:
    from yukta_rx.cli.client import checked_id

    session_id, found, workflow_id = workflow.partition("/")
    if not found:
        raise _usage(f"{workflow}: write SESSION/WORKFLOW, as in dev/orders")
    if not isinstance(payload, dict):
        raise _usage("--payload: the payload of a start is an object")
    payload = {**payload, **{name: value for name, value in own.items() if value is not None}}
    body = {
        "sessionId": checked_id("SESSION", session_id),
        "workflowId": checked_id("WORKFLOW", workflow_id),
        "payload": payload,
    }
    named: dict[str, str] = {}
    for label in labels:
        name, found, text = label.partition("=")
        if not (found and name):
            raise _usage(f"--label {label}: write NAME=TEXT, as in --label team=billing")
        named[name] = text
    return {**body, "labels": named} if named else body


def _quoted(key: str) -> str:
    """Return a key as the structured string that the header takes."""
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise _usage("--idempotency-key: 1 to 255 visible ASCII characters")
    return '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'


def _usage(text: str) -> CliError:
    return CliError(text, exit_code=EXIT_USAGE)
