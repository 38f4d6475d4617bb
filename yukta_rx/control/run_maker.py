"""RunMaker: makes the run of a plan, and makes it again of what is left of a suspended one.

Features: ADM-01, CTL-05.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yukta_rx.control.continuation import archived
from yukta_rx.control.suspended import Suspended
from yukta_rx.engine.run import Run
from yukta_rx.engine.suspendable import SuspendableRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.outlets import Outlets
    from yukta_rx.control.start_request import Plan
    from yukta_rx.durability.archive import ExecutionArchive
    from yukta_rx.engine.sub_workflow import StartChild
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.plugins.signals import SignalWaits


class RunMaker:
    """Makes runs.

    Args:
        settings: the settings in force.
        outlets: where they say what happens.
        archive: records them.
        start_child: makes runs for their nodes.
        signals: what they wait with.
        parts: what else all of them share: pool, keeping, secrets.
    """

    def __init__(
        self,
        settings: Settings,
        outlets: Outlets,
        archive: ExecutionArchive,
        start_child: StartChild,
        signals: SignalWaits,
        parts: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._outlets = outlets
        self._archive = archive
        self._parts: dict[str, Any] = {
            "settings": settings,
            "emit": outlets.emit,
            "start_child": start_child,
            "signals": signals,
            **parts,
        }

    def make(self, plan: Plan) -> Run:
        """Make the run of a plan; nobody has been told of it yet."""
        asked, child = plan.request, plan.child
        listeners = [] if child is None else [child.collect]
        suspends = child is None and self._settings.execution.suspend_after.total_seconds() > 0
        run = self._run(SuspendableRun if suspends else Run, plan, listeners)
        if child is None:
            reads_from = None if asked.continuation is None else asked.continuation.reads_from
            self._archive.begin(archived(run, asked, plan.base_dir), reads_from)
        if isinstance(run, SuspendableRun):
            run.origin = plan
        for breakpoint in plan.breakpoints:
            breakpoint.apply(run)
        listeners.append(self._outlets.publish(run))
        return run

    def _run(
        self, kind: type[Run], plan: Plan, listeners: list[Callable[[ResultEvent], None]]
    ) -> Run:
        def publish(result: ResultEvent) -> None:
            for listener in listeners:
                listener(result)

        asked = plan.request
        return kind(
            plan.prepared,
            payload=asked.payload,
            publish=publish,
            session_id=asked.session_id,
            execution_id=plan.execution_id,
            lineage=plan.lineage,
            base_dir=plan.base_dir,
            timeout=plan.timeout,
            options=plan.options,
            step_mode=asked.step_mode,
            about=plan.about,
            descent=plan.descent,
            recorder=self._archive.recorder(plan.execution_id) if plan.child is None else None,
            replay=plan.replay,
            **self._parts,
        )

    def put_aside(self, run: SuspendableRun) -> Suspended | None:
        """Put a run aside; what is left of it, None if it stays as it is.

        Raises:
            Exception: that went wrong, and it stays as it is.
        """
        left = run.left()
        if left is None:
            return None
        suspended = Suspended(run.origin, left)
        try:
            # Where results wait to be written, nobody holds on to the run.
            self._outlets.publish(suspended)
            self._outlets.swap(suspended)
        except BaseException:
            self._outlets.publish(run)
            self._outlets.swap(run)
            raise
        suspended.due, suspended.closed = run.leave(), run.closed
        self._archive.put_aside(run.execution_id)
        return suspended

    def again(self, suspended: Suspended) -> Run:
        """Make a run of what is left of it."""
        plan = suspended.plan
        if plan.request.step_mode:
            # It was let go before it was put aside.
            plan = replace(plan, request=replace(plan.request, step_mode=False))
        listeners: list[Callable[[ResultEvent], None]] = []
        run = self._run(SuspendableRun, plan, listeners)
        assert isinstance(run, SuspendableRun), "it is one of these that was put aside"
        run.origin = suspended.plan
        listeners.append(self._outlets.publish(run))
        run.take_up(suspended.left, suspended.closed)
        suspended.goes_on_as(run)
        self._outlets.swap(run)
        return run
