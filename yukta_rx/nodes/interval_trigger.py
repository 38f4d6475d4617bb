"""INTERVAL_TRIGGER: a tick at a fixed pace.  Features: ENG-01, ENG-05."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from yukta_rx.model.times import rfc3339
from yukta_rx.nodes._types import DAY_MS
from yukta_rx.plugins.contract import NodeContext, PluginConfig, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_EXACT = 1e-6
"""Share of an interval within which two times are the same."""


class IntervalTriggerConfig(PluginConfig):
    """Options of INTERVAL_TRIGGER."""

    every_ms: Annotated[int, Field(strict=True, ge=1, le=DAY_MS)] = Field(
        description="Time between two ticks, in ms."
    )
    count: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None, description="How many ticks are emitted; without it there is no end."
    )


@trigger(
    "INTERVAL_TRIGGER",
    config=IntervalTriggerConfig,
    pure=True,
    example={"everyMs": 1000, "count": 60},
)
async def interval_trigger(
    cfg: IntervalTriggerConfig, ctx: NodeContext
) -> AsyncIterator[dict[str, Any]]:
    """Emit `{"tick": i, "time": ...}`, the first at once, then one per interval.

    Tick `i` is due `i` intervals after the first, so delays never add up. While nobody asks for
    one, ticks are skipped: their numbers are missing, and they are counted as `skipped`. Pauses
    of the node or the run do not count as time. After a crash the next tick comes at once; numbers
    go on, and so does `count`.
    """
    every = cfg.every_ms / 1000
    emitted, last = ctx.emitted()
    if emitted == cfg.count:
        return
    tick = last["tick"] + 1 if emitted else 0
    began = ctx.clock.now() - tick * every
    while True:
        early = began + tick * every - ctx.clock.now()
        if early > 0:
            await ctx.clock.sleep(early)
        yield {"tick": tick, "time": rfc3339(ctx.wall())}
        emitted += 1
        if emitted == cfg.count:
            return
        # A tick that is due just now is not missed yet.
        missed = math.ceil((ctx.clock.now() - began) / every - _EXACT) - 1
        if missed > tick:
            ctx.count("skipped", missed - tick)
        tick = max(tick, missed) + 1
