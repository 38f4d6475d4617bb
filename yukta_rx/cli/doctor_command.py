"""`yukta doctor`: whether a server would start here, and what a restart would lose.

Features: DUR-05, OBS-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from yukta_rx.cli.checkup import Check
    from yukta_rx.cli.console import Console
    from yukta_rx.config.settings import Settings

_COLORS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(name="doctor")
@click.option("--bundle", metavar="FILE", help="Write a zip for a report; it holds no secrets.")
@common_options
@config_option
@click.pass_obj
def command(console: Console, bundle: str | None, config: str | None) -> int:
    """Examine this machine and the settings as a start would, and say what a restart would lose.

    Stores whose folders are there are opened and closed again, so their server must not run; disks
    and databases are tried out with a few small writes.

    Exits with 1 if a server would not start. --json gives a line of JSON for each check, and one
    with the durability matrix.
    """
    import asyncio

    from yukta_rx.cli import checkup
    from yukta_rx.cli.checkup_database import check_database, in_database
    from yukta_rx.cli.checkup_folders import check_folders
    from yukta_rx.cli.documents import settings_for
    from yukta_rx.errors import ConfigError

    found: list[Check] = []

    def note(check: Check) -> None:
        found.append(check)
        _show(console, check)

    async def stores(settings: Settings) -> None:
        if in_database(settings):
            async for check in check_database(settings):
                note(check)
            if not any(check.name == "schema" and check.verdict == "ok" for check in found):
                return
            if any(check.name == "leader" and check.verdict == "fail" for check in found):
                return
        async for check in checkup.check_stores(settings):
            note(check)

    for check in (*checkup.check_python(), *checkup.check_clock(), *checkup.check_open_files()):
        note(check)
    settings: Settings | None = None
    try:
        settings = settings_for(config)
    except ConfigError as error:
        for problem in error.problems:
            note(checkup.fail("settings", problem))
    if settings is not None:
        for look in (
            checkup.check_config,
            checkup.check_plugins,
            checkup.check_port,
            checkup.check_leader,
            check_folders,
        ):
            for check in look(settings):
                note(check)
        if not any(check.name == "settings" and check.verdict == "fail" for check in found):
            asyncio.run(stores(settings))
        _show_matrix(console, settings)
    if bundle is not None:
        _write(console, bundle, found, settings)
    return int(any(check.verdict == "fail" for check in found))


def _show(console: Console, check: Check) -> None:
    if console.as_json:
        _json(console, check.as_dict())
    else:
        told = f"{check.verdict:<5} {check.name:<10} {check.told}"
        console.line(told, _COLORS[check.verdict])


def _show_matrix(console: Console, settings: Settings) -> None:
    from yukta_rx.durability.matrix import durability_matrix, summary

    if console.as_json:
        _json(console, {"durability": [row.as_dict() for row in durability_matrix(settings)]})
        return
    for line in summary(settings):
        console.line(line)


def _write(console: Console, path: str, found: list[Check], settings: Settings | None) -> None:
    from yukta_rx.cli.console import CliError
    from yukta_rx.cli.report_bundle import write_bundle

    try:
        write_bundle(path, found, settings)
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror or error}") from error
    console.say(f"yukta: wrote {path}")


def _json(console: Console, value: object) -> None:
    from yukta_rx.model.codec import dumps_plain

    console.result(dumps_plain(value))
