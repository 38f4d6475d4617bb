"""PendingStart: a start on its way, from its admission to the beginning of its run.

Features: ADM-01, ADM-02.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.errors import ConflictError, UnavailableError, YuktaError
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.control.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run that was started, waits for its slot, or was found by its idempotency key."""

    execution_id: str
    session_id: str
    status: str
    definition_version: str
    replayed: bool = False
    queue_position: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The body of the answer to a start."""
        run = f"/api/executions/{self.execution_id}"
        results = f"/api/sessions/{self.session_id}/executions/{self.execution_id}/results"
        place = {} if self.queue_position is None else {"queuePosition": self.queue_position}
        return {
            "executionId": self.execution_id,
            "status": self.status,
            "definitionVersion": self.definition_version,
            **place,
            "links": {
                "self": run,
                "progress": f"{run}/progress",
                "results": results,
                "logs": f"{run}/logs",
                "stop": f"{run}/stop",
            },
        }


class PendingStart:
    """What every caller of one start waits for; a caller that goes away changes nothing.

    Args:
        execution_id: the run that it will be.
        session_id: its session.
        definition_version: the content hash of what it runs.
        scheduler: knows its place while it waits.
        forget: called when it fails after its callers may have been told its id.
    """

    def __init__(
        self,
        execution_id: str,
        session_id: str,
        definition_version: str,
        scheduler: Scheduler,
        forget: Callable[[PendingStart], None],
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.definition_version = definition_version
        self._scheduler = scheduler
        self._forget = forget
        self._begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.repeated = False
        """Whether an earlier run stands for it, as the log of the server says."""

    def repeat_of(self, execution_id: str) -> PendingStart:
        """Let an earlier run, with the same key, stand for this start."""
        self.execution_id = execution_id
        self.repeated = True
        self.begun(str(TaskStatus.RUNNING))
        return self

    def begun(self, status: str) -> None:
        """The run began."""
        self._begun.set_result(status)

    def failed(self, error: Exception) -> None:
        """It will never begin; every caller gets the error.

        A repeat with the same key starts anew, unless a command stopped this one: that meant its
        repeats too, so they get the same answer.
        """
        self._begun.set_exception(error)
        # Looked at here: nobody may be waiting any more.
        self._begun.exception()
        if not isinstance(error, ConflictError):
            self._forget(self)

    def left(self) -> None:
        """The server shuts down, and it goes on waiting in the store for the next one."""
        self._begun.set_exception(
            UnavailableError(
                f"the server is shutting down; start {self.execution_id} waits for the next one",
                code="shutting_down",
            )
        )
        self._begun.exception()

    async def answer(self, patience: float | None) -> Started:
        """What a caller is told once the run has begun, or when its patience is over.

        Args:
            patience: seconds that it waits; None waits for as long as it takes.

        Raises:
            YuktaError: it will never begin.
        """
        if not self._begun.done():
            await asyncio.wait((self._begun,), timeout=patience)
        if not self._begun.done():
            waiting = self._scheduler.waiting(self.execution_id)
            if waiting is not None:
                waiting.ticket.told = True
                return self._told("QUEUED", waiting.position)
            # It has its slot, or was just refused: that takes a moment at most.
            await asyncio.wait((self._begun,))
        return self._told(self._begun.result())

    def _told(self, status: str, position: int | None = None) -> Started:
        return Started(
            execution_id=self.execution_id,
            session_id=self.session_id,
            status=status,
            definition_version=self.definition_version,
            queue_position=position,
        )


def end_of(error: BaseException) -> TaskStatus:
    """How a run ends that was admitted and could not begin."""
    closing = isinstance(error, YuktaError) and error.code == "shutting_down"
    cancelled = closing or not isinstance(error, Exception)
    return TaskStatus.CANCELLED if cancelled else TaskStatus.ERROR
