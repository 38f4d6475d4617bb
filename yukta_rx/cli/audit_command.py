"""`yukta audit`: who gave which command, and what came of it.  Features: CTL-01, CTL-07."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

POLL: Final = 1.0
"""Seconds between two looks with `-f`."""


@click.command(name="audit")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("--actor", metavar="NAME", help="Only commands given by this one.")
@click.option("--command", "kind", metavar="TYPE", help="Only commands such as PauseWorkflow.")
@click.option(
    "--outcome",
    type=click.Choice(["APPLIED", "REJECTED", "HELD", "DRY_RUN"], case_sensitive=False),
    help="Only commands with this outcome.",
)
@click.option("--execution", metavar="ID", help="Only commands to this run.")
@click.option("--session", metavar="ID", help="Only commands to runs of this session.")
@click.option("--since", metavar="TIME", help="Only from then on, such as 2026-11-30T20:29:00Z.")
@server_options
@common_options
@click.pass_obj
def command(
    console: Console,
    target: Target,
    follow: bool,
    actor: str | None,
    kind: str | None,
    outcome: str | None,
    execution: str | None,
    session: str | None,
    since: str | None,
) -> int:
    """Print the commands that runs were given, oldest first; --json gives a line of JSON each."""
    from yukta_rx.cli.client import with_client

    named = {
        "actor": actor,
        "command": kind,
        "outcome": outcome,
        "executionId": execution,
        "sessionId": session,
    }
    query = [(name, text) for name, text in named.items() if text is not None]

    async def work(client: Client) -> int:
        await _print(console, client, query, since, follow=follow)
        return 0

    return with_client(target, work)


async def _print(
    console: Console, client: Client, query: Query, since: str | None, *, follow: bool
) -> None:
    """Print the rows; following, look again from the time of the newest, which may come twice."""
    import asyncio
    import time

    from yukta_rx.cli.console import CliError
    from yukta_rx.cli.follow import PATIENCE, passes
    from yukta_rx.cli.reading import pages

    seen: set[str] = set()
    contact, begun = time.monotonic(), False
    while True:
        place = [] if since is None else [("since", since)]
        try:
            async for page in pages(client, "/api/control/audit", [*query, *place]):
                for row in page["items"]:
                    key = f"{row['seq']} {row.get('executionId')}"
                    if follow and row["time"] != since:
                        since = row["time"]
                        seen.clear()
                    if key not in seen or not follow:
                        seen.add(key)
                        _write(console, row)
            contact, begun = time.monotonic(), True
        except CliError as error:
            lasting = time.monotonic() - contact > PATIENCE
            if not (follow and begun and passes(error)) or lasting:
                raise
        if not follow:
            return
        console.flush()
        await asyncio.sleep(POLL)


def _write(console: Console, row: dict[str, Any]) -> None:
    from yukta_rx.model.codec import dumps_plain

    if console.as_json:
        console.result(dumps_plain(row))
        return
    given = {name: value for name, value in row["args"].items() if value is not None}
    args = "".join(f" {name}={_shown(value)}" for name, value in given.items())
    place = " ".join(str(row[name]) for name in ("executionId", "nodeId") if row.get(name))
    why = f": {' '.join(row['reason'].split())}" if row.get("reason") else ""
    style = "red" if row["outcome"] == "REJECTED" else None
    who = f"{row['actor']} ({row['via']})"
    text = f"{row['time']} {row['outcome']} {row['command']}{args} {place} by {who}{why}"
    console.line(text, style)


def _shown(value: Any) -> str:
    from yukta_rx.model.codec import dumps_plain

    return value if isinstance(value, str) else dumps_plain(value).decode()
