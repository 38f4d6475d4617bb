"""Plugin logging: lines that carry the run and the plugin they came from.  Feature: EXT-02."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STREAMS: Final = ("stdout", "stderr")
"""The streams that a plugin may write to; lines of the engine carry `engine` instead."""

_NEWLINE = re.compile(r"\r?\n")
_LEVELS = {"stdout": "INFO", "stderr": "ERROR"}


def split_lines(text: str) -> Iterator[str]:
    r"""Yield the lines of `text`, cut at `\n` and `\r\n` only and otherwise unaltered.

    One newline at the very end closes the last line and opens none; an empty text is one
    empty line. Any other control character or separator stays in its line.

    Raises:
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"a log line is text, not {type(text).__name__}: convert it first")
    if "\n" not in text:
        yield text
        return
    lines = _NEWLINE.split(text)
    if lines[-1] == "":
        lines.pop()
    yield from lines


def check_stream(stream: str) -> str:
    """Return `stream` if a plugin may write to it.

    Raises:
        ValueError: it is neither `stdout` nor `stderr`.
    """
    if stream not in STREAMS:
        raise ValueError(f"no log stream {stream!r}: use stdout or stderr")
    return stream


@dataclass(frozen=True, slots=True)
class LoggerContext:
    """Where a plugin's lines belong.

    Attributes:
        execution_id: the run.
        session_id: the session of that run.
        plugin_id: the node's id.
        plugin_name: the plugin's type.
    """

    execution_id: str
    session_id: str
    plugin_id: str
    plugin_name: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line on its way to the log: no newline inside, `level` in logging's words."""

    context: LoggerContext
    stream: str
    level: str
    line: str


class PluginLogger:
    """Writes lines for one plugin of one run; may be used from any thread.

    Args:
        context: stamped on every line.
        sink: takes each line; has to be thread-safe and must not block.
    """

    __slots__ = ("_sink", "context")

    def __init__(self, context: LoggerContext, sink: Callable[[LogLine], None]) -> None:
        self.context = context
        self._sink = sink

    def write(self, text: str, stream: str = "stdout", level: str | None = None) -> None:
        """Write `text`, one log line per line; the level follows the stream unless given."""
        level = level or _LEVELS[check_stream(stream)]
        for line in split_lines(text):
            self._sink(LogLine(self.context, stream, level, line))

    def debug(self, text: str) -> None:
        """Write to stdout with level DEBUG."""
        self.write(text, "stdout", "DEBUG")

    def info(self, text: str) -> None:
        """Write to stdout with level INFO."""
        self.write(text, "stdout", "INFO")

    def warning(self, text: str) -> None:
        """Write to stderr with level WARNING."""
        self.write(text, "stderr", "WARNING")

    def error(self, text: str) -> None:
        """Write to stderr with level ERROR."""
        self.write(text, "stderr", "ERROR")


class PluginLoggerFactory(Protocol):
    """Makes the logger of one plugin in one run."""

    def create(self, context: LoggerContext) -> PluginLogger:
        """Return a logger that stamps `context` on every line."""


class DefaultPluginLoggerFactory:
    """Gives every logger the same sink."""

    __slots__ = ("_sink",)

    def __init__(self, sink: Callable[[LogLine], None]) -> None:
        self._sink = sink

    def create(self, context: LoggerContext) -> PluginLogger:
        """Return a logger that stamps `context` on every line."""
        return PluginLogger(context, self._sink)
