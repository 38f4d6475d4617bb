"""EdgeTap: sees the messages that go over one edge of a live run, while somebody wants to.

It stands in the slot of the producer's stage that sees each batch. That slot is looked at in any
case, so an edge that nobody taps costs nothing, and one that is tapped a call per batch.

Feature: OBS-01.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from yukta_rx.errors import BadRequestError, NotFoundError
from yukta_rx.model.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.engine.run import Run
    from yukta_rx.model.message import Message
    from yukta_rx.model.workflow import Edge as EdgeDefinition
    from yukta_rx.streams.plan import Tap
    from yukta_rx.streams.stage import Stage

log = logging.getLogger(__name__)


class EdgeTap:
    """One edge of one run.

    Args:
        run: a live run.
        source: the node that the edge comes from.
        target: the node that it goes to.
        port: its port; None for the only edge between the two, or else the default output.

    Raises:
        NotFoundError: the workflow has no such edge.
        BadRequestError: `port` is None, and only named ports lead to the target, several of them.
    """

    def __init__(self, run: Run, source: str, target: str, port: str | None = None) -> None:
        self._run = run
        self._target = target
        self._node = run.node(source)
        self.edge = _edge_of(run, source, target, port)
        self._stage: Stage | None = None
        self._seen: Callable[[Sequence[Message]], None] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing can come over the edge any more."""
        if self._run.status.terminal or self._node.status.terminal:
            return True
        stage = self._stage
        return stage is not None and (stage.ended or not self._led_to(stage))

    def attach(self, seen: Callable[[Sequence[Message]], None]) -> bool:
        """Have each batch shown to `seen`, on the loop, before the target gets it.

        What `seen` raises takes the tap off and does not reach the run.

        Returns:
            False if the run is not wired yet; ask again later.
        """
        stage = self._node.stage
        if stage is None:
            return False
        if not isinstance(stage.tap, _FanOut):
            stage.tap = _FanOut(stage, stage.tap)
        stage.tap.listeners = (*stage.tap.listeners, self._hear)
        self._stage, self._seen = stage, seen
        return True

    def detach(self) -> None:
        """See nothing more; the stage is as it was before once its last tap has gone."""
        stage, self._stage, self._seen = self._stage, None, None
        if stage is None or not isinstance(stage.tap, _FanOut):
            return
        fan = stage.tap
        fan.listeners = tuple(other for other in fan.listeners if other != self._hear)
        if not fan.listeners:
            stage.tap = fan.inner

    def _hear(self, port: str | None, messages: Sequence[Message]) -> None:
        if port != self.edge.source_port or self._seen is None:
            return
        try:
            self._seen(messages)
        except Exception:
            about = log_fields(self._run.execution_id, self._node.id)
            log.exception("the tap of an edge failed and is taken off", extra=about)
            self._seen = None

    def _led_to(self, stage: Stage) -> bool:
        port = self.edge.source_port
        return any(
            edge.dst.plan.name == self._target and edge.port == port and not edge.dead
            for edge in stage.outs
        )


class _FanOut:
    """Stands in front of what saw the batches of a stage before, for any number of taps."""

    __slots__ = ("inner", "listeners", "stage")

    def __init__(self, stage: Stage, inner: Tap | None) -> None:
        self.stage = stage
        self.inner = inner
        self.listeners: tuple[Tap, ...] = ()

    def __call__(self, port: str | None, messages: Sequence[Message]) -> None:
        if self.inner is not None:
            self.inner(port, messages)
            if self.stage.tap is not self:
                # A record that is complete puts what it stood in front of in its own place.
                self.inner, self.stage.tap = self.stage.tap, self
        for listener in self.listeners:
            listener(port, messages)


def _edge_of(run: Run, source: str, target: str, port: str | None) -> EdgeDefinition:
    between = [
        edge for edge in run.definition.edges if (edge.source, edge.target) == (source, target)
    ]
    if port is None and len(between) == 1:
        return between[0]
    for edge in between:
        if edge.source_port == port:
            return edge
    if port is None and between:
        ports = ", ".join(str(edge.source_port) for edge in between)
        raise BadRequestError(
            f"several edges lead from {source} to {target}; sourcePort must be one of {ports}",
            code="invalid_parameter",
            parameter="sourcePort",
        )
    by = "" if port is None else f" by port {port[:40]!a}"
    raise NotFoundError(
        f"workflow {run.workflow_id} has no edge from {source} to {target}{by}",
        code="edge_not_found",
        executionId=run.execution_id,
        source=source,
        target=target,
    )
