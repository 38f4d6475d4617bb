"""RunQueries: what can be read of runs; reads are of the tracker. Features: CTL-01, OBS-01."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control import explain
from yukta_rx.control.recorded import Recorded
from yukta_rx.control.run_view import Fact, RunView, kept_view, live_view
from yukta_rx.control.taps import Taps
from yukta_rx.durability.stores.checkpoints import LEFT_ALONE, UNFINISHED
from yukta_rx.engine import held
from yukta_rx.engine.run import Run
from yukta_rx.errors import BadRequestError, ConflictError, NotFoundError
from yukta_rx.model.ids import id_fault
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from yukta_rx.control.approvals import Approvals
    from yukta_rx.control.audit import AuditQuery, AuditTrail
    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.starter import Starter
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.observe.state import RunState
    from yukta_rx.observe.tap import TapReader
    from yukta_rx.observe.tracker import Tracker

COUNT_CAP: Final = 10_000
"""`count` looks at no more runs than this."""

INCLUDES: Final = frozenset({"nodes", "edges", "children"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionQuery:
    """Which runs are asked for; empty members do not filter.

    Attributes:
        statuses: any of these.
        session_ids: any of these.
        workflow_ids: any of these.
        started_after: started at or after, aware.
        started_before: started before, aware.
        parent_execution_id: children of this run.
        actor: started by.
        prefix: the id begins with.
    """

    statuses: frozenset[TaskStatus] = field(default_factory=frozenset)
    session_ids: frozenset[str] = field(default_factory=frozenset)
    workflow_ids: frozenset[str] = field(default_factory=frozenset)
    started_after: datetime | None = None
    started_before: datetime | None = None
    parent_execution_id: str | None = None
    actor: str | None = None
    prefix: str | None = None

    def accepts(self, run: RunState) -> bool:
        """Whether a run is among those that are asked for."""
        started = run.start_time
        return (
            (not self.statuses or run.status in self.statuses)
            and (not self.session_ids or run.session_id in self.session_ids)
            and (not self.workflow_ids or run.workflow_id in self.workflow_ids)
            and (self.started_after is None or bool(started and started >= self.started_after))
            and (self.started_before is None or bool(started and started < self.started_before))
            and self.parent_execution_id in (None, run.parent_execution_id)
            and self.actor in (None, run.actor)
            and (self.prefix is None or run.execution_id.startswith(self.prefix))
        )


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and where the next part begins."""

    items: list[dict[str, Any]]
    next_cursor: str | None

    def as_dict(self) -> dict[str, Any]:
        """The list as it is answered."""
        return {"items": self.items, "nextCursor": self.next_cursor}


class RunQueries:
    """Reads of runs; the tracker has applied everything that a command's answer has shown."""

    def __init__(
        self, starter: Starter, tracker: Tracker, trail: AuditTrail, resumes: Resumes
    ) -> None:
        self._starter = starter
        self.resumes = resumes
        """Goes on with runs that a crash ended, and says what that would do."""
        self._tracker = tracker
        self._trail = trail
        self.taps = Taps()
        """The edges that somebody looks into."""
        self._recorded = Recorded(starter, resumes, trail.mask)

    def session_of(self, execution_id: str) -> str | None:
        """The session of a run that is live, waits or is kept; None if there is none such."""
        run = (
            self._starter.live.peek(execution_id)
            or self._tracker.state(execution_id)
            or self.resumes.target(execution_id)
        )
        return None if run is None else run.session_id

    def summary(self, execution_id: str) -> dict[str, Any]:
        """A run as `ExecutionSummary`.

        Raises:
            NotFoundError: there is no such run.
        """
        return self._summary(self._state(execution_id))

    def detail(self, execution_id: str, include: Iterable[str] = ()) -> dict[str, Any]:
        """A run as `ExecutionDetail`.

        Args:
            execution_id: the run.
            include: any of nodes, edges, children.

        Raises:
            NotFoundError: there is no such run.
            BadRequestError: a part is unknown.
        """
        wanted = set(include)
        if unknown := wanted - INCLUDES:
            raise BadRequestError(
                f"include must be of {', '.join(sorted(INCLUDES))}, not {', '.join(unknown)}",
                code="invalid_parameter",
                parameter="include",
            )
        state = self._state(execution_id)
        run = self._starter.live.peek(execution_id)
        shown = self._summary(state)
        shown["stepMode"] = run is not None and run.step_mode
        if (waiting := self._starter.scheduler.waiting(execution_id)) is not None:
            shown["queuePosition"] = waiting.position
        shown["waitingOn"] = []
        if run is not None or waiting is not None:
            facts = explain.waiting_on(self._view(execution_id))
            shown["waitingOn"] = [fact.as_dict() for fact in facts]
        shown["breakpoints"] = list(_breakpoints(run)) if isinstance(run, Run) else []
        if state.restarted_from is not None:
            shown["restartedFrom"] = state.restarted_from
        if state.resumed_from is not None:
            shown["resumedFrom"] = state.resumed_from
        refused = self.resumes.refusal(execution_id)
        shown["resumable"] = (
            {"ok": True} if refused is None else {"ok": False, "reason": refused[0]}
        )
        shown["restartable"] = self._restartable(state)
        if "nodes" in wanted:
            shown["nodes"] = self.nodes(execution_id)
        if "edges" in wanted:
            shown["edges"] = self.edges(execution_id)
        if "children" in wanted:
            shown["children"] = [
                child.execution_id
                for child in self._tracker.runs()
                if child.parent_execution_id == execution_id
            ]
        return shown

    def nodes(self, execution_id: str) -> list[dict[str, Any]]:
        """Every node of a run as `NodeState`, in topological order."""
        nodes: list[dict[str, Any]] = self._snapshot(execution_id)["nodes"]
        return nodes

    def node(self, execution_id: str, node_id: str) -> dict[str, Any]:
        """One node of a run as `NodeState`.

        Raises:
            NotFoundError: there is no such run or node.
        """
        for node in self.nodes(execution_id):
            if node["nodeId"] == node_id:
                return node
        raise NotFoundError(
            f"run {execution_id} has no node {node_id}",
            code="node_not_found",
            executionId=execution_id,
            nodeId=node_id,
        )

    def breakpoints(self, execution_id: str, node_id: str) -> list[dict[str, Any]]:
        """The breakpoints of a node of a run; none once the run has ended.

        Raises:
            NotFoundError: there is no such run or node.
        """
        run = self._starter.live.peek(execution_id)
        if not isinstance(run, Run):
            self.node(execution_id, node_id)
            return []
        points = run.node(node_id).breakpoints
        return [{"nodeId": node_id, **point.as_dict()} for point in points]

    def held_message(self, execution_id: str, node_id: str) -> dict[str, Any]:
        """The message that a breakpoint of a node holds: `{id, payload, headers, since}`.

        The payload may be a `Claim`, which stands for a large one.

        Raises:
            NotFoundError: there is no such run or node, or the node holds none.
        """
        run = self._starter.live.peek(execution_id)
        shown = None
        if not isinstance(run, Run):
            self.node(execution_id, node_id)
        else:
            shown = held.held_message(run.node(node_id))
        if shown is None:
            raise NotFoundError(
                f"node {node_id} of run {execution_id} holds no message",
                code="nothing_held",
                executionId=execution_id,
                nodeId=node_id,
            )
        return shown

    async def fetch_held_message(self, execution_id: str, node_id: str) -> dict[str, Any]:
        """As `held_message`, and a payload that travels as a reference is read.

        Raises:
            NotFoundError: there is no such run or node, or the node holds none.
            StoreUnavailableError: the payload cannot be read; names the blob.
        """
        return await held.opened(self.held_message(execution_id, node_id))

    def why(self, execution_id: str, node_id: str | None = None) -> list[dict[str, Any]]:
        """Why a run, or a node of it, stands where it does: facts, see `explain.why`.

        Raises:
            NotFoundError: there is no such run or node.
        """
        return [fact.as_dict() for fact in explain.why(self._view(execution_id), node_id)]

    def tap(self, execution_id: str, **wanted: Any) -> TapReader:
        """Look into an edge of a live run; see `Taps.open`.

        Raises:
            ConflictError: the run has not begun, or has ended.
        """
        run = self._starter.live.get(execution_id)
        if run is None or run.status.terminal:
            status = self._state(execution_id).status
            raise ConflictError(
                f"run {execution_id} is {status}; only the edges of one that goes on can be tapped",
                code="execution_not_running",
                executionId=execution_id,
            )
        return self.taps.open(run, **wanted)

    def edges(self, execution_id: str) -> list[dict[str, Any]]:
        """Every edge of a run as `EdgeState`, in the document's order."""
        edges: list[dict[str, Any]] = self._snapshot(execution_id)["edges"]
        return edges

    def executions(self, query: ExecutionQuery, limit: int, cursor: str | None = None) -> Page:
        """Runs, the newest first.

        Args:
            query: which.
            limit: how many at most.
            cursor: `next_cursor` of the page before: the id of its last run.

        Raises:
            BadRequestError: the cursor is not an execution id.
        """
        if cursor is not None and id_fault("cursor", cursor):
            raise BadRequestError(
                f"{cursor[:40]!r} is not a cursor of this list",
                code="invalid_cursor",
                parameter="afterCursor",
            )
        found = [
            state
            for state in self._tracker.runs()
            if (cursor is None or state.execution_id < cursor) and query.accepts(state)
        ]
        found.sort(key=lambda state: state.execution_id, reverse=True)
        page = found[:limit]
        more = len(found) > limit
        return Page(
            [self._summary(state) for state in page], page[-1].execution_id if more else None
        )

    def count(self, query: ExecutionQuery) -> dict[str, Any]:
        """How many runs a query finds: `{count, countCapped}`."""
        count = 0
        for state in self._tracker.runs():
            if query.accepts(state):
                count += 1
                if count >= COUNT_CAP:
                    return {"count": count, "countCapped": True}
        return {"count": count, "countCapped": False}

    async def wait(self, execution_id: str, seconds: float) -> dict[str, Any] | None:
        """The detail of a run once it has ended; None if it has not within `seconds`.

        Raises:
            NotFoundError: there is no such run.
        """
        ended = await self.end_of(execution_id, seconds)
        return None if ended is None else self.detail(execution_id)

    async def end_of(self, execution_id: str, seconds: float) -> TaskStatus | None:
        """The status of a run once it has ended; None if it has not within `seconds`.

        Raises:
            NotFoundError: there is no such run.
        """
        state = self._state(execution_id)
        return state.status if await self._tracker.wait(execution_id, seconds) else None

    async def history(self, execution_id: str, limit: int, after: int = 0) -> Page:
        """What the execution log has of a run; see `History.page`."""
        known = self._tracker.state(execution_id) is not None
        return await self._starter.history.page(execution_id, after, limit, known=known)

    async def payload(self, execution_id: str) -> Any:
        """What a run was started with; see `Recorded.payload`."""
        return await self._recorded.payload(execution_id)

    async def outputs(
        self, execution_id: str, node_id: str, limit: int, after: int = 0
    ) -> dict[str, Any]:
        """What a node of a run emitted, as far as that is recorded; see `Recorded.outputs`."""
        state = self._tracker.state(execution_id)
        return await self._recorded.outputs(execution_id, node_id, after, limit, state)

    async def losses(self, execution_id: str) -> dict[str, Any]:
        """What a run has lost so far: `{lossless, items}`; see `LossBook`.

        Raises:
            NotFoundError: there is no such run.
            StoreUnavailableError: what is recorded of it cannot be read.
        """
        recorded = await self._starter.archive.states(execution_id)
        self._state(execution_id)
        # That a node did not come to its end loses nothing that it had emitted.
        gaps = {
            node_id: state.reason
            for node_id, state in recorded.items()
            if state.reason not in (None, UNFINISHED, LEFT_ALONE)
        }
        return self._tracker.losses.of(execution_id, gaps)

    def audit(self, execution_id: str) -> list[dict[str, Any]]:
        """The commands of a run that are kept, oldest first.

        Raises:
            NotFoundError: there is no such run.
        """
        self._state(execution_id)
        return self._trail.of_run(execution_id)

    def audit_page(self, query: AuditQuery, limit: int, cursor: str | None = None) -> Page:
        """The commands of all runs, oldest first; see `AuditTrail.find`."""
        return Page(*self._trail.find(query, limit, cursor))

    def snapshot(self, execution_id: str) -> dict[str, Any]:
        """A run as `ProgressSnapshot`: the newest there is.

        Raises:
            NotFoundError: there is no such run.
        """
        shown = dict(self._snapshot(execution_id))
        shown["execution"] = self.summary(execution_id)
        shown.pop("edges", None)
        return shown

    @property
    def approvals(self) -> Approvals:
        """What people and programs are asked."""
        return self._starter.approvals

    # -- parts

    def _restartable(self, state: RunState) -> dict[str, Any]:
        aborted = self.resumes.target(state.execution_id)
        if self._starter.archive.has(state.execution_id) or (aborted and not aborted.depth):
            return {"ok": True}
        child = state.parent_execution_id is not None
        return {"ok": False, "reason": "child_run" if child else "evicted"}

    def _state(self, execution_id: str) -> RunState:
        state = self._tracker.state(execution_id)
        if state is None:
            raise NotFoundError(
                f"there is no run {execution_id}",
                code="execution_not_found",
                executionId=execution_id,
            )
        return state

    def _view(self, execution_id: str) -> RunView:
        """A run as explanations look at it."""
        state, now = self._state(execution_id), LoopClock(asyncio.get_running_loop()).wall()
        if (run := self._starter.live.peek(execution_id)) is not None:
            asked = self._starter.approvals.waiting_on(execution_id)
            return live_view(run, now, asked) if isinstance(run, Run) else run.view(now, asked)
        waiting = self._starter.scheduler.waiting(execution_id)
        queue = None if waiting is None else Fact.of(waiting.why())
        return kept_view(state, self._snapshot(execution_id), now, queue)

    def _snapshot(self, execution_id: str) -> dict[str, Any]:
        self._state(execution_id)
        return self._tracker.snapshot(execution_id) or {"nodes": [], "edges": []}

    def _summary(self, state: RunState) -> dict[str, Any]:
        run = self._starter.live.peek(state.execution_id)
        shown = state.as_dict(paused=run is not None and run.paused)
        if run is not None and run.suspended:
            shown["suspended"] = True
        recorded = self._starter.history.recorded(state.execution_id)
        if self._tracker.losses.unwritten(state.execution_id):
            recorded = False
        return shown | {"recorded": recorded}


def _breakpoints(run: Run) -> Iterator[dict[str, Any]]:
    for node in run.nodes.values():
        for breakpoint in node.breakpoints:
            yield {"nodeId": node.id, **breakpoint.as_dict()}
