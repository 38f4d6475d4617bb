"""`yukta db`: the schema of the database, and the steps to the one that is needed.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_FAILED, EXIT_INVALID, EXIT_UNREACHABLE, EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.cli.console import Console

url_option = click.option(
    "--url",
    metavar="URL",
    help="postgresql://user@host:port/database"
    " (default: yukta.postgres.migration-url, else yukta.postgres.url).",
)


@click.group(name="db")
def command() -> None:
    """Bring the schema of the database up to date, or look at it."""


@command.command()
@url_option
@common_options
@config_option
@click.pass_obj
def upgrade(console: Console, config: str | None, url: str | None) -> None:
    """Bring the schema to what this version needs, step by step.

    What is there stays. Servers and others that do the same wait for each other; a step that
    fails leaves the step before.
    """
    from yukta_rx.durability.postgres import migrate

    address = _address(config, url)
    _reach(address)
    before, after = migrate.upgrade(address)
    done = _behind(migrate.history(), before)
    if console.as_json:
        from yukta_rx.model.codec import dumps_plain

        steps = [name for name, _ in done]
        console.result(dumps_plain({"before": before, "after": after, "steps": steps}))
        return
    for name, meaning in done:
        console.line(f"{name}  {meaning}")
    console.line(f"{before or 'none'} -> {after}" if done else f"is at {after}", "green")


@command.command()
@url_option
@common_options
@config_option
@click.pass_obj
def current(console: Console, config: str | None, url: str | None) -> None:
    """Print the step that the schema is at, and the one that this version needs."""
    from yukta_rx.durability.postgres import migrate

    found, needed = _reach(_address(config, url)), migrate.head()
    if console.as_json:
        from yukta_rx.model.codec import dumps_plain

        console.result(dumps_plain({"current": found, "needed": needed}))
        return
    console.line(f"{found or 'none'}" + (" (needed)" if found == needed else f", needed: {needed}"))


@command.command()
@url_option
@common_options
@config_option
@click.pass_obj
def check(console: Console, config: str | None, url: str | None) -> None:
    """Say whether the schema is what this version needs; exits with 3 where steps are missing."""
    from yukta_rx.durability.postgres import migrate

    found, steps = _reach(_address(config, url)), migrate.history()
    if found is not None and found not in [name for name, _ in steps]:
        raise CliError(
            f"the database is newer than this program, which does not know its step {found}",
            exit_code=EXIT_FAILED,
            code="store_unavailable",
            members={"current": found, "needed": migrate.head()},
        )
    missing = _behind(steps, found)
    if missing:
        raise CliError(
            f"the schema is at step {found or 'none'}, this version needs {missing[-1][0]}:"
            " run `yukta db upgrade`",
            *(f"missing: {name}  {meaning}" for name, meaning in missing),
            exit_code=EXIT_INVALID,
            code="store_unavailable",
            members={"current": found, "missing": [name for name, _ in missing]},
        )
    if console.as_json:
        from yukta_rx.model.codec import dumps_plain

        console.result(dumps_plain({"ok": True, "current": found}))
        return
    console.line(f"ok, at step {found}", "green")


@command.command()
@common_options
@click.pass_obj
def history(console: Console) -> None:
    """List the steps, the first one first; asks no database."""
    from yukta_rx.durability.postgres import migrate
    from yukta_rx.model.codec import dumps_plain

    for name, meaning in migrate.history():
        if console.as_json:
            console.result(dumps_plain({"step": name, "meaning": meaning}))
        else:
            console.line(f"{name}  {meaning}")


def _address(config: str | None, url: str | None) -> str:
    """Where the database is.

    Raises:
        CliError: nobody says so.
    """
    if url is not None:
        return url
    from yukta_rx.cli.documents import settings_for

    group = settings_for(config).postgres
    found: Any = group.migration_url or group.url
    if found is None:
        raise CliError(
            "no database is named: set yukta.postgres.url, or give --url"
            " postgresql://user@host:port/database",
            exit_code=EXIT_USAGE,
        )
    address: str = found.get_secret_value()
    return address


def _reach(address: str) -> str | None:
    """The step that the schema is at.

    Raises:
        CliError: the database does not answer.
    """
    from yukta_rx.durability.postgres import migrate
    from yukta_rx.errors import StoreUnavailableError

    try:
        return migrate.current(address)
    except StoreUnavailableError as error:
        raise CliError(
            error.detail, exit_code=EXIT_UNREACHABLE, code=error.code, members=error.members
        ) from error


def _behind(steps: Sequence[tuple[str, str]], at: str | None) -> list[tuple[str, str]]:
    """The steps that come behind one."""
    names = [name for name, _ in steps]
    return list(steps[names.index(at) + 1 :] if at in names else steps)
