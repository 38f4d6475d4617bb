"""`yukta export`: the workflows of a server as a zip or a folder.  Features: DEF-01, DUR-05."""

from __future__ import annotations

import os
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import BadZipFile, ZipFile

import click

from yukta_rx.cli.console import EXIT_FAILED, EXIT_USAGE, CliError
from yukta_rx.cli.options import common_options
from yukta_rx.cli.target import server_options

if TYPE_CHECKING:
    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.cli.target import Target

DEFAULT: Final = "yukta-export.zip"


@click.command(name="export")
@click.argument("place", metavar="[DIR|FILE.zip|-]", default=DEFAULT)
@click.option(
    "--session", "sessions", multiple=True, metavar="SESSION", help="Only these; may be repeated."
)
@server_options
@common_options
@click.pass_obj
def command(console: Console, target: Target, place: str, sessions: tuple[str, ...]) -> int:
    """Write the sessions and workflows of a server to a folder or a zip file.

    A name that ends in .zip (the default is yukta-export.zip) or `-` for stdout gives a zip, any
    other a folder that `yukta apply` takes. Files that are there are replaced; those of workflows
    that are gone stay.
    """
    from yukta_rx.cli.client import checked_id, with_client

    query = [("session", checked_id("--session", name)) for name in sessions]
    data: list[bytes] = []

    async def work(client: Client) -> int:
        wanted = {"Accept": "application/zip"}
        async with client.open("GET", "/api/export", query, headers=wanted) as response:
            data.append(await response.read())
        return 0

    with_client(target, work)
    return _write(console, data[0], place)


def _write(console: Console, data: bytes, place: str) -> int:
    if place == "-":
        sys.stdout.buffer.write(data)
        return 0
    files = _files(data)
    try:
        if place.endswith(".zip"):
            Path(place).write_bytes(data)
        else:
            for name, content in files.items():
                path = Path(place, *name.split("/"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CliError(f"{error.filename or place}: {reason}", exit_code=EXIT_USAGE) from error
    count = len({name.split("/")[0] for name in files})
    sessions = f"{count} session{'s' if count != 1 else ''}"
    if console.as_json:
        console.say_json({"type": "exported", "to": place, "files": sorted(files)})
    else:
        console.say(f"yukta: {len(files)} files of {sessions} written to {place}")
    return 0


def _files(data: bytes) -> dict[str, bytes]:
    """Return the files of an export; a server cannot choose where they are written.

    Raises:
        CliError: it is no export, or two files would be one where case does not count.
    """
    from yukta_rx.model.ids import id_fault

    try:
        with ZipFile(BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except (BadZipFile, ValueError) as error:
        raise CliError("what came back is no zip; is this a yukta server?") from error
    for name in files:
        session, _, file = name.partition("/")
        bare = file.removeprefix("_").removesuffix(".json")
        if not file.endswith(".json") or id_fault("", session) or id_fault("", bare):
            raise CliError(f"{name!a} in the export is not the name of a workflow")
    if os.path.normcase("A") == "a" and len({name.lower() for name in files}) < len(files):
        detail = "some ids differ only in case, which files here cannot: export to a .zip"
        raise CliError(detail, exit_code=EXIT_FAILED)
    return files
