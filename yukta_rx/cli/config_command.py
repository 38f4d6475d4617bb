"""`yukta config`: the settings in force, whether they can work, what there is.  Feature: SEC-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console


@click.group(name="config")
def command() -> None:
    """Show and check the settings."""


@command.command()
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@common_options
@config_option
@click.pass_obj
def show(console: Console, config: str | None, origin: bool) -> None:
    """Print every setting with its value, as it would stand in the file; secrets are masked.

    --json gives a line of JSON for each, with origin, default and meaning.
    """
    from yukta_rx.cli.documents import settings_for
    from yukta_rx.model.codec import dumps_plain
    from yukta_rx.security.settings_view import settings_in_force

    settings = settings_for(config)
    for item in settings_in_force(settings):
        if console.as_json:
            console.result(dumps_plain(item.as_dict()))
            continue
        value = "unset" if item.value is None else dumps_plain(item.value).decode()
        console.line(f"{item.name} = {value}" + (f"  # {item.origin}" if origin else ""))
    for warning in settings.warnings:
        console.say(f"yukta: warning: {warning}", "yellow")


@command.command()
@common_options
@config_option
@click.pass_obj
def check(console: Console, config: str | None) -> None:
    """Say whether a server would start with these settings, and what will surprise someone."""
    from yukta_rx.app import check_settings
    from yukta_rx.cli.documents import settings_for

    settings = settings_for(config)
    warnings = [*settings.warnings, *check_settings(settings)]
    if console.as_json:
        from yukta_rx.model.codec import dumps_plain

        console.result(dumps_plain({"ok": True, "warnings": warnings}))
        return
    for warning in warnings:
        console.say(f"yukta: warning: {warning}", "yellow")
    console.line("ok", "green")


@command.command()
@common_options
@click.pass_obj
def schema(console: Console) -> None:
    """Print the JSON Schema of yukta.toml, for editors."""
    import json

    from yukta_rx.security.settings_view import settings_schema

    for line in json.dumps(settings_schema(), indent=2).splitlines():
        console.result(line.encode())
