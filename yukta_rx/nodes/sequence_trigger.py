"""SEQUENCE_TRIGGER: numbered messages, as many as asked for.  Feature: ENG-01."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from yukta_rx.nodes._types import Milliseconds
from yukta_rx.plugins.contract import NodeContext, PluginConfig, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator


class SequenceTriggerConfig(PluginConfig):
    """Options of SEQUENCE_TRIGGER."""

    count: Annotated[int, Field(strict=True, ge=0)] = Field(
        description="How many messages; 0 is without end."
    )
    start: Annotated[int, Field(strict=True)] = Field(0, description="The first number.")
    interval_ms: Milliseconds = Field(0, description="Pause between two messages, in ms.")


@trigger(
    "SEQUENCE_TRIGGER",
    config=SequenceTriggerConfig,
    blocking=False,
    pure=True,
    replayable=True,
    example={"count": 100, "start": 1, "intervalMs": 50},
)
def sequence_trigger(
    cfg: SequenceTriggerConfig, ctx: NodeContext
) -> Iterator[Any] | AsyncIterator[Any]:
    """Emit `{"n": start}`, `{"n": start + 1}` and so on as demand allows.

    Without an interval the numbers come from a plain iterator, at the speed of the event loop;
    with one from an async iterator that waits in the node's own, pausable time. After a crash it
    does not wait again for what it had emitted.
    """
    numbers: Iterable[int] = (
        range(cfg.start, cfg.start + cfg.count) if cfg.count else count(cfg.start)
    )
    if cfg.interval_ms:
        return _paced(numbers, cfg.interval_ms / 1000, ctx)
    return ({"n": n} for n in numbers)


async def _paced(numbers: Iterable[int], pause: float, ctx: NodeContext) -> AsyncIterator[Any]:
    emitted, _ = ctx.emitted()
    for place, n in enumerate(numbers):
        if place and place >= emitted:
            await ctx.clock.sleep(pause)
        yield {"n": n}
