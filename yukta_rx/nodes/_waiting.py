"""Waits in a node's own time, with signs of life.  Feature: ENG-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from yukta_rx.plugins.contract import NodeContext

_BEAT: Final = 0.25
"""Seconds between two signs of life."""

_EXACT: Final = 1e-6
"""Seconds within which two times are the same."""


async def wait_until(when: float, ctx: NodeContext) -> None:
    """Wait until `ctx.clock.now()` has reached `when`; a pause holds it back.

    The idle clock does not end the node meanwhile. What one wait is late, the next one is not:
    a caller that adds to `when` keeps its pace.
    """
    while (left := when - ctx.clock.now()) > _EXACT:
        await ctx.clock.sleep(min(left, _BEAT))
        ctx.heartbeat()
