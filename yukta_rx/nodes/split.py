"""SPLIT: one message per element of an array.  Feature: ENG-02."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from yukta_rx.nodes._paths import array_at
from yukta_rx.nodes._types import Path
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

if TYPE_CHECKING:
    from collections.abc import Iterator


class SplitConfig(PluginConfig):
    """Options of SPLIT."""

    path: Path = Field(description="Path of the array; empty if the payload is the array.")


@processor("SPLIT", config=SplitConfig, blocking=False, pure=True, example={"path": "items"})
def split(msg: Message, cfg: SplitConfig, ctx: NodeContext) -> Iterator[Message]:
    """Emit each element of an array as a message of its own, in order.

    Raises:
        BadInputError: there is no array at `path`.
    """
    for element in array_at(msg.payload, cfg.path):
        yield msg.replace(payload=element)
