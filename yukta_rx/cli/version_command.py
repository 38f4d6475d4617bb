"""`yukta version`."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console


@click.command(name="version")
@common_options
@click.pass_obj
def command(console: Console) -> None:
    """Print the version."""
    import json

    from yukta_rx import __version__

    python = platform.python_version()
    if console.as_json:
        console.result(json.dumps({"version": __version__, "python": python}).encode())
    else:
        console.result(f"yukta_rx {__version__} (Python {python})".encode())
