"""RATE_LIMIT: lets messages through at a pace.  Features: ENG-01, ENG-05."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from yukta_rx.nodes._waiting import wait_until
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor


class RateLimitConfig(PluginConfig):
    """Options of RATE_LIMIT."""

    per_second: Annotated[float, Field(strict=True, gt=0, le=1_000_000)] = Field(
        description="How many messages pass in a second; below 1 it takes more than a second each."
    )
    burst: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        1, description="How many may pass at once after a time in which none came."
    )


class _Bucket:
    """A token bucket, kept as the time at which it would be full again.

    Times are added up from when a message was due, not from when it left, so no delay adds up.
    """

    __slots__ = ("_full_at", "_turn")

    def __init__(self) -> None:
        self._full_at = 0.0
        # Callers wait in line: one that is cancelled has taken nothing.
        self._turn = asyncio.Lock()

    async def take(self, cfg: RateLimitConfig, ctx: NodeContext) -> None:
        """Wait for a token, which costs 1/perSecond, and take it."""
        cost = 1 / cfg.per_second
        async with self._turn:
            full_at = max(self._full_at, ctx.clock.now())
            await wait_until(full_at - (cfg.burst - 1) * cost, ctx)
            self._full_at = full_at + cost


def _open(cfg: RateLimitConfig | None, ctx: NodeContext) -> None:
    ctx.state = _Bucket()


@processor(
    "RATE_LIMIT",
    config=RateLimitConfig,
    pure=True,
    exact=True,
    open=_open,
    example={"perSecond": 10, "burst": 20},
)
async def rate_limit(msg: Message, cfg: RateLimitConfig, ctx: NodeContext) -> Message:
    """Pass messages on unchanged and in order, `perSecond` of them in the long run.

    Up to `burst` pass at once after a time without any. Waiting stands still while the node or
    the run is paused. With an expression for `perSecond`, each message takes its own time.
    """
    await ctx.state.take(cfg, ctx)
    return msg
