"""FILE_TERMINAL: writes each message as a line of a file.  Features: ENG-01, SEC-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from yukta_rx.errors import BadInputError
from yukta_rx.nodes._files import locate_target
from yukta_rx.nodes._output_files import OutputFiles
from yukta_rx.plugins.contract import ConfigFault, Message, NodeContext, PluginConfig, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class FileTerminalConfig(PluginConfig):
    """Options of FILE_TERMINAL."""

    path: str = Field(
        min_length=1,
        description="The file; a relative path starts at the definition's folder, on a server at"
        " yukta.data.dir. Its folder has to exist.",
    )
    format: Literal["jsonl", "csv", "text"] = Field("jsonl", description="How it is written.")
    mode: Literal["APPEND", "REPLACE"] = Field(
        "APPEND",
        description="Add to what is there, or put a new file in its place once the node succeeds.",
    )


def _check(cfg: FileTerminalConfig, settings: Any, base_dir: Path | None) -> Iterator[ConfigFault]:
    try:
        locate_target(cfg.path, settings, base_dir)
    except BadInputError as error:
        yield ConfigFault(("path",), "file_not_usable", error.detail)


def _open(cfg: FileTerminalConfig | None, ctx: NodeContext) -> None:
    ctx.state = OutputFiles(ctx)
    # A file that is known is there even if no message comes, and is refused before one does.
    if cfg is not None:
        ctx.state.open(cfg.path, replace=cfg.mode == "REPLACE")


def _finish(cfg: FileTerminalConfig | None, ctx: NodeContext) -> None:
    ctx.state.finish()


def _close(cfg: FileTerminalConfig | None, ctx: NodeContext) -> None:
    if ctx.state is not None:
        ctx.state.close()


def _anew(config: Mapping[str, Any]) -> bool:
    # The new file of a run that was cut off is gone.
    return bool(config.get("mode", "APPEND") != "APPEND")


@terminal(
    "FILE_TERMINAL",
    config=FileTerminalConfig,
    pure=True,
    anew=_anew,
    check=_check,
    open=_open,
    finish=_finish,
    close=_close,
    example={"path": "results.jsonl", "format": "jsonl", "mode": "REPLACE"},
)
def file_terminal(msg: Message, cfg: FileTerminalConfig, ctx: NodeContext) -> None:
    """Write each message to a UTF-8 file, as one line or row that is there at once.

    A jsonl line is the payload as JSON; what JSON cannot say is shown with its tag. A csv row has
    the members of an object, in columns that the first row of the file names: the first message
    if the file is new. A member without a column is refused, a column without a member is empty,
    as is null. A line of text is a text as it is (one with newlines is several lines), anything
    else its JSON.

    The path may depend on the message; at most 64 files are open at a time. REPLACE writes beside
    the file and renames when all input is worked off, so that readers see the old or the new file,
    whole; a run that fails changes nothing. With several files, each is renamed on its own. A run
    that goes on after a crash adds what was not finished, and makes a new file anew.

    Raises:
        BadInputError: the file may not be written, or the payload not in this format.
        OSError: the file cannot be written; names path and reason.
    """
    ctx.state.write(cfg.path, cfg.format, msg.payload, replace=cfg.mode == "REPLACE")
