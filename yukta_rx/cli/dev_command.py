"""`yukta dev`: a server on this machine that follows workflow files.  Feature: DEF-01."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console


@click.command(name="dev")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one. (8080)")
@common_options
@config_option
@click.pass_obj
def command(console: Console, paths: tuple[str, ...], port: int | None, config: str | None) -> int:
    """Serve workflow files on 127.0.0.1 and apply them again whenever they change.

    All workflows, of files and of folders with all below them, are those of the session `dev`;
    JSON files in a folder that are no workflows are passed over. A file that is not valid is
    reported, with lines, and its last valid form stays. Nodes may read files below the paths that
    are given; relative paths start from the folder of the workflow's file.

    Exits with 0 after a graceful end, 2 if a path is not there, 1 if the port cannot be had.
    """
    import asyncio

    from yukta_rx.cli.dev_session import DevSession, roots
    from yukta_rx.cli.documents import settings_for, with_folder
    from yukta_rx.cli.serving import serve
    from yukta_rx.plugins.registry import PluginRegistry

    given: dict[str, object] = {"yukta.http.host": "127.0.0.1"}
    if port is not None:
        given["yukta.http.port"] = port
    settings = settings_for(config, given)
    for folder in roots(paths):
        settings = with_folder(settings, folder)
    registry = PluginRegistry.load(settings)
    session = DevSession(console, paths, registry, settings)
    return asyncio.run(
        serve(console, settings, registry, prepare=session.look, meanwhile=session.follow)
    )
