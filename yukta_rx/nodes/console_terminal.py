"""CONSOLE_TERMINAL: shows each message as a line of the node's live log.  Feature: OBS-02."""

from __future__ import annotations

from pydantic import Field

from yukta_rx.model.codec import dumps_plain
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, terminal


class ConsoleTerminalConfig(PluginConfig):
    """Options of CONSOLE_TERMINAL."""

    prefix: str = Field("", description="Text in front of each line.")


@terminal(
    "CONSOLE_TERMINAL",
    config=ConsoleTerminalConfig,
    blocking=False,
    pure=True,
    example={"prefix": "done: "},
)
def console_terminal(msg: Message, cfg: ConsoleTerminalConfig, ctx: NodeContext) -> None:
    """Write the payload of each message, as one line of JSON, to the node's log.

    Raises:
        UnserialisablePayloadError: the payload holds something that has no JSON form.
    """
    ctx.log(cfg.prefix + dumps_plain(msg.payload).decode())
