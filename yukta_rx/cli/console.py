"""Where commands write: results to stdout, everything said to a person to stderr.

Features: OBS-02, OBS-03.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from yukta_rx.errors import ConfigError, DefinitionError, ValidationError, YuktaError
from yukta_rx.model.log_fields import LOG_FIELDS
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.security.masking import Masker

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INVALID = 3
EXIT_NOT_FOUND = 4
EXIT_REFUSED = 5
EXIT_CONFLICT = 6
EXIT_LIMIT = 7
EXIT_UNREACHABLE = 8
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# Control characters in a plugin's line or an id must not steer the reader's terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class CliError(Exception):
    """A refusal: what the user reads, and how the process ends.

    Args:
        lines: one sentence each, beginning with the place.
        exit_code: see API.md, section 6.
        code: stable word for `--json`.
        members: further members of the problem object.
    """

    def __init__(
        self,
        *lines: str,
        exit_code: int = EXIT_FAILED,
        code: str = "invalid_parameter",
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.exit_code = exit_code
        self.code = code
        self.members = dict(members or {})


class Console:
    """The two streams of one command.

    Attributes:
        debug: show tracebacks and the log.
        as_json: speak JSON on stderr too.
        color: `auto`, `always` or `never`.
        above: writes a line above a live view, while there is one.
        logs: shows what the library logs, while a command runs.
    """

    def __init__(self) -> None:
        self.debug = bool(os.environ.get("YUKTA_DEBUG"))
        self.as_json = False
        self.color = "auto"
        self.above: Callable[[str], None] | None = None
        self.logs: logging.Handler | None = None

    # -- stdout

    def result(self, line: bytes) -> None:
        """Write one line of output.

        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        if self.above is not None and sys.stdout.isatty():
            self.above(line.decode())
            return
        left = memoryview(line + b"\n")
        while left:  # an unbuffered stdout may take a part only
            left = left[sys.stdout.buffer.write(left) :]

    def line(self, text: str, style: str | None = None) -> None:
        """Write one line of output for a person; control characters are shown, not sent.

        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        shown = _shown(text)
        if style and self.colored(sys.stdout):
            shown = click.style(shown, fg=style)
        self.result(shown.encode(errors="replace"))

    def flush(self) -> None:
        """Hand on what was written.

        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        sys.stdout.flush()

    @staticmethod
    def close_stdout() -> None:
        """Forget about a stdout that nobody reads, so that Python's own last flush is quiet."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    # -- stderr

    def say(self, text: str, style: str | None = None) -> None:
        """Write one line for a person; control characters are shown, not sent."""
        shown = _shown(text)
        if style and self.colored(sys.stderr):
            shown = click.style(shown, fg=style)
        if self.above is not None:
            self.above(shown)
            return
        sys.stderr.write(shown + "\n")
        sys.stderr.flush()

    def say_json(self, value: Mapping[str, Any]) -> None:
        """Write one line of JSON for a program."""
        sys.stderr.write(json.dumps(value, default=str) + "\n")
        sys.stderr.flush()

    def colored(self, stream: IO[str]) -> bool:
        """Whether to write colours to `stream`."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def keep_secret(self, masker: Masker) -> None:
        """Show no secret that `masker` knows or learns in what the library logs."""
        from yukta_rx.security.masking import MaskingFilter

        if self.logs is not None:
            self.logs.addFilter(MaskingFilter(masker))

    # -- refusals

    def refuse(self, error: BaseException) -> int:
        """Say what went wrong and return the exit code."""
        refusal = as_refusal(error)
        if refusal is None:
            refusal = CliError(
                f"unexpected error: {type(error).__name__}: {error}".split("\n", 1)[0]
                + ("" if self.debug else "; --debug or YUKTA_DEBUG=1 shows where"),
                code="internal",
            )
            logging.getLogger(__name__).debug("unexpected error", exc_info=error)
        if self.debug:
            sys.stderr.write("".join(traceback.format_exception(error)))
        if self.as_json:
            self.say_json(problem(refusal))
        else:
            for line in refusal.lines:
                self.say(f"yukta: {line}", "red")
        return refusal.exit_code


def _shown(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def as_refusal(error: BaseException) -> CliError | None:
    """Return an error that is raised on purpose as a refusal, None for any other."""
    if isinstance(error, CliError):
        return error
    if isinstance(error, click.ClickException):
        return CliError(_one_line(error), exit_code=error.exit_code, code="invalid_parameter")
    if isinstance(error, ConfigError):
        return CliError(*error.problems, code=error.code, members=error.members)
    if isinstance(error, ValidationError):
        lines = [str(fault) for fault in error.errors]
        code = EXIT_INVALID if isinstance(error, DefinitionError) else EXIT_FAILED
        return CliError(*lines, exit_code=code, code=error.code, members=error.members)
    if isinstance(error, YuktaError):
        lines = error.detail.splitlines() or [error.code]
        return CliError(*lines, code=error.code, members=error.members)
    return None


def problem(refusal: CliError) -> dict[str, Any]:
    """Return the problem object of a refusal (RFC 9457, without a status: this is no HTTP)."""
    return {
        **refusal.members,
        "type": f"urn:yukta:problem:{refusal.code}",
        "title": refusal.code.replace("_", " "),
        "code": refusal.code,
        "detail": "\n".join(refusal.lines),
    }


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{text} (see {context.command_path} --help)" if context is not None else text


class LogHandler(logging.Handler):
    """Shows warnings of the library as lines, with tracebacks only for `--debug`."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.DEBUG if console.debug else logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line."""
        try:
            text = record.getMessage()
        except Exception:
            self.handleError(record)
            return
        if self._console.as_json:
            self._console.say_json(_as_object(record, text))
            return
        self._console.say(f"yukta: {record.levelname.lower()}: {text}", "yellow")
        if self._console.debug and record.exc_text:
            sys.stderr.write(record.exc_text + "\n")  # a filter made it, from a masked traceback
        elif self._console.debug and record.exc_info:
            sys.stderr.write("".join(traceback.format_exception(*record.exc_info)))


def _as_object(record: logging.LogRecord, text: str) -> dict[str, Any]:
    """A record of the log as one object; a traceback is one string in it."""
    shown: dict[str, Any] = {
        "type": "log",
        "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname,
        "logger": record.name,
        "line": text,
    }
    shown |= {name: getattr(record, name) for name in LOG_FIELDS if hasattr(record, name)}
    if record.exc_text:
        shown["exception"] = record.exc_text  # a filter made it, from a masked traceback
    elif record.exc_info and record.exc_info[1] is not None:
        shown["exception"] = "".join(traceback.format_exception(*record.exc_info))
    return shown
