"""Approvals: the open requests of all runs in one list, and how long answers are remembered.

Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from yukta_rx.control.commands.signal import SignalNode
from yukta_rx.durability.stores.input_requests import Answer
from yukta_rx.errors import BadRequestError, NotFoundError, YuktaError
from yukta_rx.model.ids import id_fault
from yukta_rx.model.times import rfc3339
from yukta_rx.plugins.signals import SignalWaits
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.suspended import Suspended
    from yukta_rx.durability.stores.input_requests import InputRequest, InputRequestStore
    from yukta_rx.engine.run import Run
    from yukta_rx.plugins.signals import Place
    from yukta_rx.streams.clock import LoopClock, Timer

log = logging.getLogger(__name__)


class Approvals:
    """What people and programs are asked. Belongs to the loop.

    The answers of a run are remembered as long as the run itself is: for the time of
    `yukta.tracker.cleanup-ttl` after its end, and beyond that while it is among the newest
    `yukta.restart.retained-executions` that asked anything, so that it may be restarted.

    Args:
        store: keeps requests, answers and early signals.
        settings: the settings in force.
        clock: tells the time.

    Attributes:
        signals: the waits.
    """

    def __init__(self, store: InputRequestStore, settings: Settings, clock: LoopClock) -> None:
        self._store = store
        self._clock = clock
        self._ttl = settings.tracker.cleanup_ttl.total_seconds()
        self._retained = settings.restart.retained_executions
        self._most = settings.tracker.max_executions
        self._ended: OrderedDict[str, float] = OrderedDict()
        """When the last run of a lineage ended, the longest ago first."""
        self._timer: Timer | None = None
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self.signals = SignalWaits(store, clock)

    # -- what is open

    def page(
        self, sessions: Callable[[str], bool], limit: int, cursor: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Open requests as API.md's `Approval`, the oldest first, and where the next page begins.

        Args:
            sessions: whether those of a session are wanted.
            limit: how many at most.
            cursor: what the page before gave: its last approval.

        Raises:
            BadRequestError: the cursor is not of this list.
        """
        if cursor is not None and id_fault("cursor", cursor):
            raise BadRequestError(
                f"{cursor[:40]!r} is not a cursor of this list",
                code="invalid_cursor",
                parameter="afterCursor",
            )
        found = self.signals.approvals(
            lambda request: (
                sessions(request.session_id) and (cursor is None or request.request_id > cursor)
            )
        )
        more = found[limit - 1]["approvalId"] if len(found) > limit else None
        return found[:limit], more

    def waiting_on(self, execution_id: str) -> Iterator[dict[str, Any]]:
        """For each node of a run where messages wait for signals, that it does."""
        for requests in self.signals.of_run(execution_id):
            first = requests[0]
            many = f"{len(requests)} messages wait" if len(requests) > 1 else "a message waits"
            asked = f": {first.prompt}" if first.prompt else ""
            yield {
                "kind": "APPROVAL",
                "nodeId": first.node_id,
                "since": rfc3339(first.asked_at),
                "detail": f"{many} for signal `{first.signal}`{asked}",
            }

    # -- answers

    async def find(self, approval_id: str) -> InputRequest:
        """An approval, open or not.

        Raises:
            NotFoundError: there is none of that id, or none that is remembered.
        """
        request = self.signals.get(approval_id) or await self._store.get(approval_id)
        if request is None:
            raise no_such_approval(approval_id)
        return request

    async def send(
        self,
        place: Place,
        signal: str,
        *,
        decision: str,
        data: Any,
        comment: str | None,
        actor: str,
        approval_id: str | None,
    ) -> bool:
        """Give a signal to a node; see `SignalWaits.send`.

        Returns:
            False if it is kept, because nobody waits for it.
        """
        answer = Answer(
            decision=decision,
            data=data,
            comment=comment,
            answered_by=actor,
            answered_at=self._clock.wall(),
        )
        return await self.signals.send(place, signal, answer, approval_id) is not None

    # -- what is remembered

    def ended(self, run: Run | Suspended) -> None:
        """A run has ended: nothing of it waits, and its answers will be forgotten in time."""
        if self.signals.ended(run.execution_id):
            self._ended[run.lineage] = self._clock.now()
            self._ended.move_to_end(run.lineage)
            self._sweep()

    def restore(self, lineages: Iterable[str]) -> None:
        """Runs of these lineages ended before this server started: forget them in time as well."""
        for lineage in lineages:
            self._ended[lineage] = self._clock.now()
        self._sweep()

    def _sweep(self) -> None:
        """Forget what is old enough, and look again when the next one is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        while len(self._ended) > self._retained:
            lineage, at = next(iter(self._ended.items()))
            if now < at + self._ttl and len(self._ended) <= self._most:
                self._timer = self._clock.call_at(at + self._ttl, self._sweep)
                return
            del self._ended[lineage]
            # One that goes on will end too.
            if not self.signals.concern(lineage):
                self._tasks.spawn(self._forget(lineage), f"yukta forget {lineage}")

    async def _forget(self, lineage: str) -> None:
        try:
            await self._store.forget(lineage)
        except YuktaError as error:
            log.warning("the answers of lineage %s are not forgotten: %s", lineage, error)

    async def close(self) -> None:
        """Wait for what is being forgotten, and watch no time any more."""
        if self._timer is not None:
            self._timer.cancel()
        await self.signals.close()
        await self._tasks.ended()


def no_such_approval(approval_id: str) -> NotFoundError:
    """Return the error of an approval that is not known."""
    return NotFoundError(
        f"there is no approval {approval_id}", code="approval_not_found", approvalId=approval_id
    )


def answer_to(
    request: InputRequest, decision: str | None, data: Any = None, comment: str | None = None
) -> SignalNode:
    """Return the command that answers an approval; the run refuses it if that is not open.

    Raises:
        ValidationError: the data is too large.
    """
    given = {"decision": decision, "data": data, "comment": comment}
    return SignalNode.parse(
        {
            "executionId": request.execution_id,
            "nodeId": request.node_id,
            "name": request.signal,
            "approvalId": request.request_id,
            **{name: value for name, value in given.items() if value is not None},
        }
    )
