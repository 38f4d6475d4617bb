"""Drops: what a node's edge buffer dropped, counted and told. Features: ENG-01, W42."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.model.message import Message
    from yukta_rx.streams.clock import Clock, Timer
    from yukta_rx.streams.edge import Edge

EVERY: Final = 0.25
"""Seconds between two events about the drops of one node, at least."""

SAMPLE: Final = 10
"""Message ids in one event."""


class Drops:
    """Counts at once; says the first drop at once, and what follows a few times per second.

    Args:
        clock: tells the time.
        say: says an event of the node: type and data.
        overflow: the rule of the buffer, which the meter is labelled with.
    """

    __slots__ = ("_clock", "_count", "_overflow", "_sample", "_say", "_timer", "total")

    def __init__(
        self, clock: Clock, say: Callable[[str, dict[str, Any]], None], overflow: str
    ) -> None:
        self._clock = clock
        self._say = say
        self._overflow = overflow
        self._count = 0
        self._sample: list[Message] = []
        self._timer: Timer | None = None
        self.total = 0

    def add(self, _edge: Edge, messages: list[Message]) -> None:
        """Messages were dropped."""
        self.total += len(messages)
        self._count += len(messages)
        self._sample += messages[: SAMPLE - len(self._sample)]
        if self._timer is None:
            self._tell()
            self._timer = self._clock.call_at(self._clock.now() + EVERY, self._due)

    def flush(self) -> None:
        """The node has ended: say what was not said yet."""
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def _due(self) -> None:
        self._timer = None
        if self._count:
            self._tell()
            self._timer = self._clock.call_at(self._clock.now() + EVERY, self._due)

    def _tell(self) -> None:
        if self._count:
            sample = [msg.id for msg in self._sample]
            data = {"count": self._count, "sample": sample, "overflow": self._overflow}
            self._count = 0
            self._sample = []
            self._say("edge.dropped", data)
