"""`yukta supervise`: runs a supervisor outside the server.  Feature: CTL-07."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target


@click.command(name="supervise")
@click.argument("what", metavar="MODULE:NAME")
@click.option("--dry-run", is_flag=True, help="Only record its commands.")
@click.option(
    "--lease",
    type=click.FloatRange(min=1, max=3600),
    default=30.0,
    metavar="SECONDS",
    help="How long the server waits for word of it before it counts as gone. (30)",
)
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, what: str, dry_run: bool, lease: float) -> int:
    """Steer runs by a supervisor: a class, an instance or a function, in a module or FILE.py.

    Writes what became of each of its commands. Ctrl-C ends it; a connection that breaks is made
    again and goes on behind the last event.
    """
    from yukta_rx.cli.client import with_client

    given = _loaded(what)

    async def work(client: Client) -> int:
        from yukta_rx.cli.supervise_session import SuperviseSession

        session = SuperviseSession(client, console, given, lease=lease, dry_run=dry_run)
        return await session.run()

    return with_client(target, work)


def _loaded(what: str) -> Any:
    from importlib import import_module
    from operator import attrgetter

    module, colon, name = what.rpartition(":")
    if not colon or not module or not name:
        raise CliError(f"{what}: write MODULE:NAME or FILE.py:NAME", exit_code=EXIT_USAGE)
    try:
        if module.endswith(".py"):
            loaded = _from_file(module)
        else:
            # As `python -m` does, so that a module beside one is found.
            sys.path.insert(0, "")
            loaded = import_module(module)
        return attrgetter(name)(loaded)
    except (ImportError, OSError, SyntaxError, AttributeError) as error:
        raise CliError(f"{what}: cannot be loaded: {error}", exit_code=EXIT_USAGE) from error


def _from_file(path: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    name = Path(path).stem
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {path}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
