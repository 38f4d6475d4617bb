"""SteppingDown: admits nothing while it is not known who leads, and ends when another server does.

The fence refuses every write that comes too late, so what is stopped here is work for nothing: runs
end as if the server had died, and are for the other one to go on with.

Features: DUR-04, SCL-02.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from yukta_rx.control.leadership import Leader
from yukta_rx.engine.interrupt import interrupt
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from yukta_rx.control.leadership import Leadership
    from yukta_rx.control.reopening import Reopening
    from yukta_rx.control.starter import Starter
    from yukta_rx.durability.stores.leading import Leading
    from yukta_rx.errors import YuktaError

log = logging.getLogger(__name__)


class SteppingDown:
    """Follows who leads. Belongs to the loop.

    Args:
        leading: says whether the stores are this server's own.
        leadership: tells clients.
        starter: owns the runs.
        reopening: resumes runs in the background.
    """

    def __init__(
        self, leading: Leading, leadership: Leadership, starter: Starter, reopening: Reopening
    ) -> None:
        self._leading = leading
        self._leadership = leadership
        self._starter = starter
        self._reopening = reopening
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._stepped_down = False
        starter.refusal = self.refusal
        leading.watch(self._changed)

    def refusal(self) -> YuktaError | None:
        """What a start is refused with; None if it may be admitted."""
        if self._leading.over:
            return self._leadership.refusal()
        if (fault := self._leading.fault) is not None:
            return StoreUnavailableError(fault, retry_after=1, store="postgres")
        return None

    def _changed(self) -> None:
        if not self._leading.over or self._stepped_down:
            return
        self._stepped_down = True
        leader = self._leading.leader
        log.error("this server steps down: %s leads", leader or "another server")
        self._leadership.stand_by(None if leader is None else Leader(leader))
        self._tasks.spawn(self._step_down(), "yukta step down")

    async def _step_down(self) -> None:
        await self._reopening.close()
        self._starter.scheduler.close()
        why = "another server took over while it ran"
        await self._starter.cut_off(partial(interrupt, detail=why))

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._tasks.ended()
