"""`yukta key`: makes API keys.  Feature: SEC-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options

if TYPE_CHECKING:
    from datetime import datetime

    from yukta_rx.cli.console import Console


@click.group(name="key")
def command() -> None:
    """Make API keys."""


@command.command()
@click.option("--name", default="key", metavar="NAME", help="Its name in the audit. (key)")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"], case_sensitive=False),
    default="viewer",
    help="What it may do. (viewer)",
)
@click.option(
    "--sessions",
    "sessions",
    multiple=True,
    metavar="SESSION",
    help="Limit it to sessions; may be repeated or a comma list.",
)
@click.option("--expires", metavar="TIME", help="When it stops to be good, such as 2027-12-31.")
@common_options
@click.pass_obj
def new(
    console: Console, name: str, role: str, sessions: tuple[str, ...], expires: str | None
) -> None:
    """Make a key and print it, this once, and below it the hash that stands for it in the settings.

    A server knows it once the entry that is shown with it stands in yukta.toml, and it has been
    started again. Several keys may be good at once, so one can follow another without a gap.
    """
    from yukta_rx.model.codec import dumps_plain
    from yukta_rx.model.ids import id_fault
    from yukta_rx.model.times import rfc3339
    from yukta_rx.security.api_keys import hashed, new_key

    limit = [part.strip() for text in sessions for part in text.split(",") if part.strip()]
    for option, text in (("--name", name), *(("--sessions", session) for session in limit)):
        if fault := id_fault(option, text):
            raise CliError(fault, exit_code=EXIT_USAGE)
    end = None if expires is None else rfc3339(_time(expires))
    key = new_key()
    entry: dict[str, Any] = {"name": name, "key": hashed(key), "role": role.upper()}
    entry |= {"sessions": limit} if limit else {}
    entry |= {"expires": end} if end is not None else {}
    if console.as_json:
        console.result(dumps_plain({"key": key, "entry": entry}))
        return
    console.line(key)
    console.line(entry["key"])
    console.say("Add to yukta.toml; the first line above is the key, which is not shown again:")
    console.say("")
    console.say("[[yukta.api-keys]]")
    for member, value in entry.items():
        # Ids, words and times need no escapes, so JSON is TOML here.
        console.say(f"{member} = {dumps_plain(value).decode()}")


def _time(text: str) -> datetime:
    from datetime import UTC, datetime

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        detail = f"--expires {text}: expected a time such as 2027-12-31T23:59:00Z"
        raise CliError(detail, exit_code=EXIT_USAGE) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
