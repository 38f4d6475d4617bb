"""Voice: what a run says, as events and as results, in order, and in the log of the program.

Features: OBS-01, OBS-02, OBS-03.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.results import ResultEvent, ResultType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.message import Message
    from yukta_rx.security.masking import Masker
    from yukta_rx.streams.plan import Tap


log = logging.getLogger(__name__)


def ignore(_item: object) -> None:
    """Where nobody listens."""


class Voice:
    """Stamps what a run says with its ids and the time, and hands it to the two listeners."""

    __slots__ = ("_about", "_emit", "_masker", "_publish", "_wall", "cursor")

    def __init__(
        self,
        about: tuple[str, str, str],
        masker: Masker,
        wall: Callable[[], datetime],
        emit: Callable[[ExecutionEvent], None],
        publish: Callable[[ResultEvent], None],
    ) -> None:
        self._about = about
        """The ids of session, workflow and run."""
        self._masker = masker
        self._wall = wall
        self._emit = emit
        self._publish = publish
        self.cursor = 0

    def event(
        self,
        kind: str,
        data: dict[str, Any],
        node_id: str | None = None,
        time: datetime | None = None,
    ) -> None:
        """Say that something happened, now or at `time`; secrets that were given are masked."""
        session_id, workflow_id, execution_id = self._about
        self._emit(
            ExecutionEvent(
                type=kind,
                time=self._wall() if time is None else time,
                session_id=session_id,
                workflow_id=workflow_id,
                execution_id=execution_id,
                node_id=node_id,
                data=self._masker.mask_json(data),
            )
        )

    def line(self, node_id: str, line: dict[str, Any]) -> None:
        """Say a line of a plugin's log."""
        self.event("node.log", line, node_id)

    def warn(self, told: str, *values: object, node_id: str | None = None) -> None:
        """Write a warning about the run, or one of its nodes, to the log of the program."""
        log.warning(told, *values, extra=log_fields(self._about[2], node_id))

    def result(self, kind: ResultType, time: datetime | None, **fields: Any) -> None:
        """Say an item of the results channel, of now or of `time`."""
        self.cursor += 1
        time = self._wall() if time is None else time
        self._publish(ResultEvent(cursor=self.cursor, type=kind, time=time, **fields))

    def tap_of(self, node: NodeRuntime) -> Tap | None:
        """What makes results of the messages that reach a terminal; None if nobody wants them."""
        if self._publish is ignore or not node.publishes:
            return None

        node_id, publish = node.id, self._publish

        def tap(_port: str | None, messages: Sequence[Message]) -> None:
            time = self._wall()
            for msg in messages:
                self.cursor += 1
                publish(
                    ResultEvent(
                        cursor=self.cursor,
                        type=ResultType.RESULT,
                        time=time,
                        node_id=node_id,
                        message=msg,
                    )
                )

        return tap
