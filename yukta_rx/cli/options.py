"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from yukta_rx.cli.console import Console

F = TypeVar("F", bound=Callable[..., Any])


def _set(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(ctx.ensure_object(Console), name, value)

    return keep


def common_options(command: F) -> F:
    """Add `--json`, `--color` and `--debug`; they end up on the Console."""
    for option in (
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set("debug"),
            help="Show tracebacks and the log (also: YUKTA_DEBUG=1).",
        ),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            is_eager=True,
            callback=_set("color"),
            help="Colours on stderr; auto looks at the terminal, NO_COLOR and FORCE_COLOR.",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set("as_json"),
            help="JSON on stderr too; errors are problem objects.",
        ),
    ):
        command = option(command)
    return command


config_option = click.option(
    "--config",
    metavar="FILE",
    help="Settings (default: $YUKTA_CONFIG, ./yukta.toml, ...).",
)
"""`--config FILE`."""


def payload_options(command: F) -> F:
    """Add `--payload` as `payload` and `--set` as `members`."""
    for option in (
        click.option(
            "--set",
            "members",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set a member of the payload; VALUE is JSON, or else text. May be repeated.",
        ),
        click.option(
            "--payload", metavar="JSON|@FILE", help="Start payload; @- reads stdin. Default: {}"
        ),
    ):
        command = option(command)
    return command
