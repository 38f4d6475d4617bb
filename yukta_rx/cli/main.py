"""The `yukta` command: finds the sub-command, and turns every error into a line and a code.

Sub-commands are imported when they are needed, and what is heavy inside them.
Feature: OBS-03.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import click

from yukta_rx.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    EXIT_USAGE,
    Console,
    LogHandler,
)

F = TypeVar("F", bound=Callable[..., Any])

COMMANDS: Mapping[str, str] = {
    "run": "run_command:command",
    "validate": "validate_command:command",
    "serve": "serve_command:command",
    "dev": "dev_command:command",
    "start": "start_command:command",
    "ls": "ls_command:command",
    "status": "status_command:command",
    "wait": "wait_command:command",
    "result": "result_command:command",
    "events": "events_command:command",
    "logs": "logs_command:command",
    "tap": "tap_command:command",
    "losses": "losses_command:command",
    "pause": "steer_commands:pause",
    "resume": "steer_commands:resume",
    "step": "steer_commands:step",
    "step-mode": "steer_commands:step_mode",
    "stop": "steer_commands:stop",
    "queue": "scheduler_commands:queue",
    "priority": "scheduler_commands:priority",
    "limits": "scheduler_commands:limits",
    "skip": "node_commands:skip",
    "unskip": "node_commands:unskip",
    "break": "node_commands:break_",
    "restart": "restart_commands:restart",
    "retry": "restart_commands:retry",
    "recover": "restart_commands:recover",
    "signal": "signal_commands:signal",
    "approvals": "signal_commands:approvals",
    "held": "node_commands:held",
    "apply": "apply_command:command",
    "diff": "apply_command:diff",
    "export": "export_command:command",
    "versions": "versions_command:command",
    "graph": "graph_command:command",
    "audit": "audit_command:command",
    "supervisors": "supervisors_command:command",
    "supervise": "supervise_command:command",
    "plugins": "plugins_command:command",
    "config": "config_command:command",
    "doctor": "doctor_command:command",
    "key": "key_command:command",
    "db": "db_command:command",
    "migrate": "db_command:upgrade",
    "version": "version_command:command",
}
"""Sub-commands in the order of the help, and the module and name of each."""


class _Commands(click.Group):
    """A group whose commands are modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        found: click.Command = getattr(import_module(f"yukta_rx.cli.{module}"), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise click.UsageError(f"no command `{name}`; there is {', '.join(COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run, check, serve and steer workflows as live, back-pressured streams."""


def execute(args: Sequence[str], console: Console | None = None) -> int:
    """Run one command and return its exit code; no error gets out."""
    console = console or Console()
    console.as_json = "--json" in args
    handler = console.logs = LogHandler(console)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        code = cli.main(list(args), "yukta", standalone_mode=False, obj=console)
        console.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show(sys.stderr)
        return EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # click itself exits in one case only: when nobody reads what it writes.
        console.close_stdout()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        return console.refuse(error)
    finally:
        root.removeHandler(handler)


def main() -> None:
    """Be the process: run the command line and exit."""
    code = execute(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        Console.close_stdout()
        code = code or EXIT_PIPE_CLOSED
    sys.exit(code)
