"""`yukta serve`: the server.  Features: HA-01, OBS-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from yukta_rx.app import Engine
    from yukta_rx.cli.console import Console


@click.command(name="serve")
@click.option("--host", help="Address to listen on, instead of yukta.http.host. (127.0.0.1)")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port, instead of yukta.http.port; 0 takes a free one. (8080)",
)
@click.option(
    "--apply", "folder", metavar="DIR", help="Apply the workflows of a folder before serving."
)
@common_options
@config_option
@click.pass_obj
def command(
    console: Console, host: str | None, port: int | None, folder: str | None, config: str | None
) -> int:
    """Serve the REST interface and the event streams until Ctrl-C or SIGTERM.

    With --apply each sub-folder of DIR is a session of that name, and the files in DIR itself are
    those of the session `default`. A session that is applied has exactly the workflows of its
    folder.

    Exits with 0 after a graceful end, 2 if DIR is not there, 3 if a workflow in it is not valid,
    1 if the settings are refused or the address cannot be had.
    """
    import asyncio

    from yukta_rx.cli.applying import apply, read_sessions, say_plan
    from yukta_rx.cli.documents import settings_for
    from yukta_rx.cli.serving import serve
    from yukta_rx.plugins.registry import PluginRegistry

    given = {"yukta.http.host": host, "yukta.http.port": port}
    settings = settings_for(config, {name: v for name, v in given.items() if v is not None})
    registry = PluginRegistry.load(settings)
    sessions = [] if folder is None else read_sessions(folder, registry, settings)

    async def prepare(engine: Engine) -> None:
        for session in sessions:
            say_plan(console, await apply(engine, session.session_id, session.documents))

    return asyncio.run(serve(console, settings, registry, prepare=prepare, applied_from=folder))
