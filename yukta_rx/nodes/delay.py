"""DELAY: holds each message for a while.  Feature: ENG-05."""

from __future__ import annotations

from pydantic import Field

from yukta_rx.nodes._types import Milliseconds
from yukta_rx.nodes._waiting import wait_until
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor


class DelayConfig(PluginConfig):
    """Options of DELAY."""

    ms: Milliseconds = Field(description="How long each message is held, in ms.")


@processor("DELAY", config=DelayConfig, pure=True, exact=True, example={"ms": 200})
async def delay(msg: Message, cfg: DelayConfig, ctx: NodeContext) -> Message:
    """Hold each message for `ms`, one at a time and in order, and pass it on unchanged.

    The wait stands still while the node or the run is paused.
    """
    await wait_until(ctx.clock.now() + cfg.ms / 1000, ctx)
    return msg
