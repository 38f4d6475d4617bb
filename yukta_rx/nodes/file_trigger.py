"""FILE_TRIGGER: a message per line or row of a file.  Features: ENG-01, SEC-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from yukta_rx.errors import BadInputError
from yukta_rx.nodes._files import locate
from yukta_rx.nodes._records import READERS, BadLine
from yukta_rx.plugins.contract import ConfigFault, Message, NodeContext, PluginConfig, trigger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FileTriggerConfig(PluginConfig):
    """Options of FILE_TRIGGER."""

    path: str = Field(
        min_length=1,
        description="The file; a relative path starts at the definition's folder, on a server at"
        " yukta.data.dir.",
    )
    format: Literal["jsonl", "csv", "text"] = Field("jsonl", description="How it is written.")
    on_bad_line: Literal["FAIL", "SKIP"] = Field(
        "FAIL", description="End the node at a line that cannot be read, or leave it out."
    )


def _check(cfg: FileTriggerConfig, settings: Any, base_dir: Path | None) -> Iterator[ConfigFault]:
    try:
        locate(cfg.path, settings, base_dir)
    except BadInputError as error:
        yield ConfigFault(("path",), "file_not_usable", error.detail)


@trigger(
    "FILE_TRIGGER",
    config=FileTriggerConfig,
    pure=True,
    replayable=True,
    check=_check,
    example={"path": "orders.jsonl", "format": "jsonl", "onBadLine": "SKIP"},
)
def file_trigger(cfg: FileTriggerConfig, ctx: NodeContext) -> Iterator[Message]:
    """Emit each line or row of a UTF-8 file, read as demand allows.

    A jsonl line gives its value, a csv row an object of texts named by the first row, a line of
    text the text. Skipped lines are counted as `bad_line` and named on the node's stderr.

    Raises:
        BadInputError: the file may not be read, or a line of it cannot be; names file and line.
    """
    with locate(cfg.path, ctx.settings, ctx.base_dir).open("rb") as file:
        try:
            for number, record in READERS[cfg.format](file):
                if not isinstance(record, BadLine):
                    yield Message.of(record)
                elif cfg.on_bad_line == "FAIL":
                    raise BadInputError(f"line {number}: {record.detail}")
                else:
                    ctx.count("bad_line")
                    ctx.log(f"{cfg.path} line {number} skipped: {record.detail}", "stderr")
        except BadInputError as error:
            raise BadInputError(f"{cfg.path} {error.detail}") from error
