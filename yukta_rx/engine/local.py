"""LocalChildren: runs below a run where there is no store, of workflows that are at hand.

Feature: ENG-07.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.engine.run import DEADLINE, Run
from yukta_rx.engine.voice import ignore
from yukta_rx.errors import NotFoundError
from yukta_rx.model.trace_context import TRACEPARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.sub_workflow import ChildRequest
    from yukta_rx.model.events import ExecutionEvent


class LocalChildren:
    """A `StartChild` over prepared workflows.

    Args:
        workflows: by id.
        settings: the settings in force.
        emit: gets the events of the children.
        base_dir: folder that relative paths start from.
        timeout: deadline of each child in active seconds, None for no limit.
    """

    def __init__(
        self,
        workflows: Mapping[str, PreparedWorkflow],
        *,
        settings: Settings,
        emit: Callable[[ExecutionEvent], None] = ignore,
        base_dir: Path | None = None,
        timeout: float | None = DEADLINE,
    ) -> None:
        self._workflows = workflows
        self._settings = settings
        self._emit = emit
        self._base_dir = base_dir
        self._timeout = timeout

    async def __call__(self, request: ChildRequest) -> None:
        """Run one of the workflows to its end; see `StartChild`."""
        prepared = self._workflows.get(request.workflow_id)
        if prepared is None:
            raise NotFoundError(
                f"it is not among those at hand: {', '.join(self._workflows) or 'none'}",
                code="workflow_not_found",
                workflowId=request.workflow_id,
            )
        run = Run(
            prepared,
            payload=request.payload,
            settings=self._settings,
            emit=self._emit,
            publish=request.collect,
            session_id=request.parent.session_id,
            lineage=request.lineage,
            base_dir=self._base_dir,
            timeout=self._timeout,
            about={**request.descent.about(), TRACEPARENT: request.parent.traceparent},
            start_child=self,
            descent=request.descent,
            secrets=request.parent.secrets,
            signals=request.parent.signals,
            keeping=request.parent.keeping,
        )
        request.begins(run)
        await run.execute()
