"""Suspended: stands for a run in which nothing happens but that messages wait for signals.

It answers what is asked of every run that goes on, as the run itself would. Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from yukta_rx.control.run_view import EdgeView, Fact, NodeView, RunView
from yukta_rx.engine.progress import execution_state
from yukta_rx.engine.suspension import edge_states, looked_at, node_states
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import rfc3339
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from yukta_rx.control.start_request import Plan
    from yukta_rx.engine.losses import Loss
    from yukta_rx.engine.run import Run
    from yukta_rx.engine.suspension import Left


class Suspended:
    """What is left of a run.

    Args:
        plan: what it was made of.
        left: what it needs to go on.

    Attributes:
        due: when it has to be taken up, in seconds of the loop; infinite for never.
        closed: set once the plugins of the run that was are closed; None if they are.
    """

    __slots__ = (
        *("_holders", "_over", "_run", "closed", "definition", "execution_id", "left", "plan"),
        *("due", "session_id", "started_at", "traceparent"),
    )

    suspended = True
    paused = step_mode = borrowed = False
    status = TaskStatus.RUNNING
    ended_at: datetime | None = None
    error: dict[str, Any] | None = None

    def __init__(self, plan: Plan, left: Left) -> None:
        self.plan = plan
        self.left = left
        self.due = math.inf
        self.closed: asyncio.Event | None = None
        self.execution_id = plan.execution_id
        self.session_id = plan.request.session_id
        self.definition = plan.prepared.definition
        self.traceparent = plan.request.traceparent
        self.started_at = left.started_at
        self._holders = 0
        self._over = False
        self._run: Run | None = None

    @property
    def workflow_id(self) -> str:
        """Its workflow."""
        return self.plan.request.workflow_id

    @property
    def lineage(self) -> str:
        """What the ids of its messages derive from."""
        return self.plan.lineage or self.plan.execution_id

    @property
    def about(self) -> Mapping[str, Any]:
        """What is shown with it."""
        return self.plan.about

    def statuses(self) -> dict[str, TaskStatus]:
        """Of each node that something is left of, its status."""
        nodes = zip(self.plan.prepared.nodes, self.left.nodes, strict=False)
        return {node_id: was.status for node_id, was in nodes}

    def losses(self) -> Iterable[Loss]:
        """Messages lost that no event tells."""
        return self.left.losses

    def hold(self, on: bool) -> None:
        """Keep it from emitting anything, also once it is taken up, or let it go on."""
        if self._run is not None:
            self._run.hold(on)
        else:
            self._holders += 1 if on else -1

    def goes_on_as(self, run: Run) -> None:
        """It is taken up."""
        self._run = run
        for _ in range(self._holders):
            run.hold(True)

    def end(self) -> None:
        """It cannot be taken up: nodes that have not ended come to nothing."""
        wall = LoopClock(asyncio.get_running_loop()).wall()
        self._over = True
        self.left = self.left._replace(
            nodes=tuple(
                node
                if node.status.terminal
                else node._replace(status=TaskStatus.CANCELLED, ended_at=wall)
                for node in self.left.nodes
            )
        )

    def snapshot(self) -> dict[str, Any]:
        """`ProgressSnapshot` with `edges`; its version grows with each call."""
        loop = asyncio.get_running_loop()
        now, wall = loop.time(), LoopClock(loop).wall()
        left = self.left = looked_at(self.left, now)._replace(snapshots=self.left.snapshots + 1)
        return {
            "version": left.snapshots,
            "time": rfc3339(wall),
            "execution": execution_state(self, wall) | ({} if self._over else {"suspended": True}),
            "nodes": node_states(self.plan.prepared, left, now),
            "edges": edge_states(self.definition, left, now),
        }

    def view(self, now: datetime, asked: Iterable[Mapping[str, Any]]) -> RunView:
        """The run as explanations look at it, at time `now`.

        Args:
            now: the time of day.
            asked: what its nodes wait for of people and programs, as `waitingOn`.
        """
        approvals: dict[str, list[Fact]] = {}
        for shown in asked:
            approvals.setdefault(shown["nodeId"], []).append(Fact.of(shown))
        time = asyncio.get_running_loop().time()
        return RunView(
            status=self.status,
            since=rfc3339(self.started_at or now),
            nodes={
                shown["nodeId"]: NodeView(
                    id=shown["nodeId"],
                    kind=shown["kind"],
                    status=TaskStatus(shown["status"]),
                    since=shown.get("startTime"),
                    ended=shown.get("endTime"),
                    received=shown["in"],
                    emitted=shown["out"],
                    waits=tuple(approvals.get(shown["nodeId"], ())),
                )
                for shown in node_states(self.plan.prepared, self.left, time)
            },
            edges=tuple(
                EdgeView(source=edge["source"], target=edge["target"], waiting=edge["waiting"])
                for edge in edge_states(self.definition, self.left, time)
            ),
        )
