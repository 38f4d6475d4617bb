"""SignalBench: what a harness sends signals with. Feature: CTL-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.durability.stores.input_requests import Answer
from yukta_rx.engine.asking import place_of
from yukta_rx.plugins.signals import APPROVE, SignalWaits, not_open
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    import asyncio

    from yukta_rx.durability.stores.input_requests import InputRequestStore
    from yukta_rx.engine.run import Run


class SignalBench:
    """The waits of the runs of one harness.

    Args:
        loop: tells the time.
        store: keeps requests and answers; a new one in memory if None.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: InputRequestStore | None = None
    ) -> None:
        self._clock = LoopClock(loop)
        self.store = MemoryInputRequestStore() if store is None else store
        self.waits = SignalWaits(self.store, self._clock)

    @property
    def approvals(self) -> list[dict[str, Any]]:
        """What waits, as `GET /api/approvals` shows it."""
        return self.waits.approvals(lambda _: True)

    async def send(
        self,
        run: Run,
        node_id: str,
        name: str,
        decision: str = APPROVE,
        data: Any = None,
        *,
        by: str = "test",
        approval_id: str | None = None,
    ) -> bool:
        """Give a signal to a node; False if it is kept, because nothing waits for it.

        Raises:
            NotFoundError: there is no such node.
            SignalBufferFullError: the node keeps too many already.
            ConflictError: the named approval is not open.
        """
        place = place_of(run, run.node(node_id))
        answer = Answer(
            decision=decision, data=data, answered_by=by, answered_at=self._clock.wall()
        )
        return await self.waits.send(place, name, answer, approval_id) is not None

    async def answer(
        self, run: Run, approval_id: str, decision: str = APPROVE, data: Any = None
    ) -> None:
        """Answer one approval.

        Raises:
            ConflictError: it is not open.
        """
        request = self.waits.get(approval_id)
        if request is None:
            raise not_open(approval_id)
        await self.send(
            run, request.node_id, request.signal, decision, data, approval_id=approval_id
        )
