"""`yukta run`: runs a workflow in this process.  Features: ENG-06, OBS-03, CTL-03."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from yukta_rx.cli.options import common_options, config_option, payload_options

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console


@click.command(name="run")
@click.argument("file")
@payload_options
@click.option("--step", is_flag=True, help="Start paused; Enter lets one message into each node.")
@click.option("--timeout", metavar="DURATION", help="Run deadline, such as 30s; 0 is none. (1h)")
@common_options
@config_option
@click.pass_obj
def command(
    console: Console,
    file: str,
    payload: str | None,
    members: tuple[str, ...],
    step: bool,
    timeout: str | None,
    config: str | None,
) -> int:
    """Run the workflow in FILE, here and without a server.

    Results are written to stdout as JSON lines {"nodeId", "messageId", "payload"}; progress, log
    lines and the summary to stderr. Ctrl-C lets messages under way finish, a second one stops at
    once. Files below the folder of FILE may be read; the workflows that SUB_WORKFLOW nodes name are
    looked for in its JSON files.

    Exits with 0 if the run ends SUCCESS, 1 if it ends otherwise, 3 if the workflow is not valid,
    124 if the run deadline passed, 130 if it was interrupted.
    """
    from yukta_rx.cli.runner import RunRequest, run_file

    return run_file(console, RunRequest(file, payload, members, step, timeout, config))
