"""`yukta versions`: the versions of a workflow on a server.  Feature: DEF-01."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

Decorator = Callable[[Any], Any]


@click.group(name="versions")
def command() -> None:
    """List, show, compare, annotate and take back the versions of a workflow."""


def _about(*arguments: Decorator) -> Decorator:
    """Add the workflow, further arguments, and the server."""

    def add(function: Any) -> Any:
        added: Any = click.pass_obj(function)
        for option in (common_options, server_options, *reversed(arguments)):
            added = option(added)
        return click.argument("workflow", metavar="SESSION/WORKFLOW")(added)

    return add


_VERSION = click.IntRange(min=1)


@command.command(name="ls")
@_about()
def ls(console: Console, target: Target, workflow: str) -> int:
    """List the versions, the newest first; --json gives a line of JSON for each."""

    async def work(client: Client, path: str) -> int:
        from yukta_rx.cli import texts
        from yukta_rx.cli.reading import pages
        from yukta_rx.model.codec import dumps_plain

        rows = [row async for page in pages(client, f"{path}/versions") for row in page["items"]]
        if console.as_json:
            for row in rows:
                console.result(dumps_plain(row))
            return 0
        cells = [
            (
                f"{row['version']}{'*' if row['current'] else ''}",
                row["time"],
                row["definitionVersion"][:12],
                row["actor"],
                row.get("note", ""),
            )
            for row in rows
        ]
        for line in texts.columns([("VERSION", "TIME", "CONTENT", "ACTOR", "NOTE"), *cells]):
            console.line(line)
        return 0

    return _run(target, workflow, work)


@command.command(name="show")
@_about(click.argument("version", type=_VERSION))
def show(console: Console, target: Target, workflow: str, version: int) -> int:
    """Print the document of a version; --json gives what else is known of it too."""

    async def work(client: Client, path: str) -> int:
        from yukta_rx.definitions.bundle import readable
        from yukta_rx.model.codec import dumps_plain

        found = (await client.get(f"{path}/versions/{version}")).json()
        if console.as_json:
            console.result(dumps_plain(found))
        else:
            console.result(readable(found["document"]).rstrip().encode())
        return 0

    return _run(target, workflow, work)


@command.command(name="diff")
@_about(
    click.argument("older", metavar="FROM", type=_VERSION),
    click.argument("newer", metavar="[TO]", type=_VERSION, required=False),
)
def diff(console: Console, target: Target, workflow: str, older: int, newer: int | None) -> int:
    """Show what changed from one version to another, or to the current one."""

    async def work(client: Client, path: str) -> int:
        from yukta_rx.cli.plans import diff_lines
        from yukta_rx.model.codec import dumps_plain

        query = [("from", str(older)), *([] if newer is None else [("to", str(newer))])]
        found = (await client.get(f"{path}/versions/diff", query)).json()
        if console.as_json:
            console.result(dumps_plain(found))
            return 0
        for line in diff_lines(found):
            console.line(line, {"+": "green", "-": "red"}.get(line[:1]))
        return 0

    return _run(target, workflow, work)


@command.command(name="rollback")
@_about(click.argument("version", type=_VERSION))
def rollback(console: Console, target: Target, workflow: str, version: int) -> int:
    """Make the content of a version the current one, as a new version."""

    async def work(client: Client, path: str) -> int:
        from yukta_rx.model.codec import dumps_plain

        saved = (await client.post(f"{path}/versions/{version}/rollback")).json()
        if console.as_json:
            console.result(dumps_plain(saved))
        elif saved["unchanged"]:
            console.line(f"version {saved['version']} is that content already")
        else:
            console.line(f"version {saved['version']}")
        return 0

    return _run(target, workflow, work)


@command.command(name="note")
@_about(click.argument("version", type=_VERSION), click.argument("text", default=""))
def note(console: Console, target: Target, workflow: str, version: int, text: str) -> int:
    """Write something about a version, which then is never dropped; no TEXT takes it away."""

    async def work(client: Client, path: str) -> int:
        await client.post(f"{path}/versions/note", body={"version": version, "note": text})
        return 0

    return _run(target, workflow, work)


def _run(target: Target, workflow: str, work: Callable[[Client, str], Any]) -> int:
    from yukta_rx.cli.client import with_client
    from yukta_rx.cli.places import workflow_path

    path = workflow_path(workflow)
    return with_client(target, lambda client: work(client, path))
