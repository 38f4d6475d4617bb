"""Planner: looks up, checks and makes ready all that a run needs; nothing has happened yet.

Features: ADM-01, ENG-07.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yukta_rx.control.start_checks import breakpoints_of, check_lossless, check_request
from yukta_rx.control.start_request import Plan, StartRequest, about_run
from yukta_rx.engine.sub_workflow import Descent
from yukta_rx.model.ids import new_execution_id
from yukta_rx.model.workflow import RunOptions

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import Preparer
    from yukta_rx.definitions.service import DefinitionService
    from yukta_rx.engine.sub_workflow import ChildRequest
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.pool import BlockingPool


class Planner:
    """Makes plans of requests.

    Args:
        settings: the settings in force.
        definitions: sessions and workflows.
        preparer: makes definitions ready, or refuses them.
        pool: threads for conditions of breakpoints.
    """

    def __init__(
        self,
        settings: Settings,
        definitions: DefinitionService,
        preparer: Preparer,
        pool: BlockingPool,
    ) -> None:
        self._settings = settings
        self._definitions = definitions
        self._preparer = preparer
        self._pool = pool

    async def plan(
        self,
        request: StartRequest,
        child: ChildRequest | None = None,
        execution_id: str | None = None,
    ) -> Plan:
        """Plan a start.

        Args:
            request: what is asked for.
            child: set for a run that another one starts.
            execution_id: the id that the run will have; a new one if None.

        Raises:
            NotFoundError: there is no such session, workflow or version.
            ValidationError: the workflow, the options or a payload member is refused.
        """
        check_request(request)
        session = await self._definitions.session_record(request.session_id)
        definition, base_dir = await self._definition_of(request)
        prepared = await self._preparer.prepare(definition, base_dir)
        execution_id = execution_id or new_execution_id()
        descent = Descent() if child is None else child.descent
        return Plan(
            request=request,
            execution_id=execution_id,
            prepared=prepared,
            base_dir=base_dir,
            timeout=session.config.execution_timeout,
            options=check_lossless(_options_of(definition, request), definition),
            breakpoints=breakpoints_of(
                request.breakpoints, execution_id, prepared, self._settings, self._pool
            ),
            descent=descent,
            about=about_run(request, descent),
            child=child,
        )

    async def _definition_of(self, request: StartRequest) -> tuple[WorkflowDefinition, Path | None]:
        """What is to be run, and the folder that relative paths in it start from."""
        if request.continuation is not None:
            return request.continuation.definition, request.continuation.base_dir
        ids = request.session_id, request.workflow_id
        if (version := request.version) is None:
            record = await self._definitions.get(*ids)
        else:
            record = await self._definitions.pinned(*ids, version)
        return record.definition, record.base_dir or self._definitions.base_dir


def _options_of(definition: WorkflowDefinition, request: StartRequest) -> RunOptions:
    """The definition's options, each overridden by what the request says."""
    if not request.options:
        return definition.options
    own = definition.options.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return RunOptions.model_validate({**own, **request.options})
