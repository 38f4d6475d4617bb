"""`yukta signal` and `yukta approvals`: answering what waits for people.  Feature: CTL-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

_ANSWERS = {
    "ACCEPTED": "a message waited for it",
    "QUEUED": "no message waits for it; it is kept ten minutes for the next that does",
}


@click.command(name="signal")
@click.argument("execution_id", metavar="ID")
@click.argument("node")
@click.argument("name")
@click.option("--decision", metavar="WORD", help="`reject`, or any other word for a yes. (approve)")
@click.option("--data", metavar="JSON|TEXT", help="What the message is tagged with.")
@click.option("--reason", metavar="TEXT", help="Goes into the audit.")
@server_options
@common_options
@click.pass_obj
def signal(
    console: Console,
    target: Target,
    execution_id: str,
    node: str,
    name: str,
    decision: str | None,
    data: str | None,
    reason: str | None,
) -> int:
    """Give a node the signal NAME: the message that has waited longest for it goes on."""
    from yukta_rx.cli.client import checked_id

    path = f"/api/executions/{checked_id('ID', execution_id)}/nodes/{checked_id('NODE', node)}"
    body = {"name": name, "decision": decision, "data": _data(data), "reason": reason}
    return _give(console, target, f"{path}/signal", body)


@click.command(name="approvals")
@click.argument("action", type=click.Choice(["ls", "approve", "reject"]), default="ls")
@click.argument("approval_id", metavar="[ID]", required=False)
@click.option("--comment", metavar="TEXT", help="With an answer: goes into the audit.")
@click.option("--data", metavar="JSON|TEXT", help="With an answer: the message is tagged with it.")
@click.option("--session", metavar="SESSION", help="With ls: only of this session.")
@server_options
@common_options
@click.pass_obj
def approvals(
    console: Console,
    target: Target,
    action: str,
    approval_id: str | None,
    comment: str | None,
    data: str | None,
    session: str | None,
) -> int:
    """List what waits for people, the oldest first, or answer one: `approve ID`, `reject ID`."""
    if action == "ls":
        if approval_id is not None or comment is not None or data is not None:
            raise click.UsageError("ls takes neither an ID nor an answer; approve and reject do")
        return _list(console, target, session)
    if approval_id is None or session is not None:
        raise click.UsageError(f"{action} takes the ID of an approval, and no --session")
    return _answer(console, target, approval_id, action, comment, data)


def _answer(
    console: Console,
    target: Target,
    approval_id: str,
    decision: str,
    comment: str | None,
    data: str | None,
) -> int:
    from yukta_rx.cli.client import checked_id

    path = f"/api/approvals/{checked_id('ID', approval_id)}"
    body = {"decision": decision, "comment": comment, "data": _data(data)}
    return _give(console, target, path, body)


def _give(console: Console, target: Target, path: str, body: Mapping[str, Any]) -> int:
    from yukta_rx.cli.client import with_client

    given = {name: value for name, value in body.items() if value is not None}

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.model.codec import dumps_plain

        result = (await client.post(path, (), given)).json()
        if console.as_json:
            console.result(dumps_plain(result))
            return 0
        answer = result.get("answer")
        # Without an answer it is held for a second person.
        console.line(f"{answer}: {_ANSWERS.get(answer, '')}" if answer else texts.command(result))
        return 0

    return with_client(target, work)


def _data(text: str | None) -> Any:
    """The JSON value that a text is, or else the text."""
    from yukta_rx.errors import YuktaError
    from yukta_rx.model.codec import loads_external

    if text is None:
        return None
    try:
        return loads_external(text)
    except YuktaError:
        return text


def _list(console: Console, target: Target, session: str | None) -> int:
    from yukta_rx.cli.client import checked_id, with_client

    path = "/api/approvals"
    if session is not None:
        path = f"/api/sessions/{checked_id('SESSION', session)}/approvals"

    async def work(client: Client) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.cli.reading import pages
        from yukta_rx.model.codec import dumps_plain

        found: list[dict[str, Any]] = []
        async for page in pages(client, path):
            found += page["items"]
        if console.as_json:
            for item in found:
                console.result(dumps_plain(item))
        else:
            for line in texts.columns(_rows(found)):
                console.line(line)
        return 0

    return with_client(target, work)


def _rows(found: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    yield ("APPROVAL", "WORKFLOW", "NODE", "SIGNAL", "SINCE", "ASKED")
    for item in found:
        asked = " ".join(str(item.get("prompt") or item["payloadPreview"]).split())
        yield (
            str(item["approvalId"]),
            f"{item['sessionId']}/{item['workflowId']}",
            str(item["nodeId"]),
            str(item["signal"]),
            str(item["since"]),
            asked if len(asked) <= 60 else asked[:59] + "…",
        )
