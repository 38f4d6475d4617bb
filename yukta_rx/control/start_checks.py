"""Checks of what a start asks for; each fault has its place in the body.

Features: ADM-01, CTL-02.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as PydanticError

from yukta_rx.control.commands.breakpoint import SetBreakpoint
from yukta_rx.control.tickets import priority_fault
from yukta_rx.definitions.node_checks import lossy_buffer
from yukta_rx.definitions.parse import fault_of
from yukta_rx.engine.run import Run
from yukta_rx.errors import ConflictError, Fault, NotFoundError, ValidationError
from yukta_rx.model.ids import id_fault
from yukta_rx.model.workflow import RunOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.start_request import StartRequest
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.streams.pool import BlockingPool


def check_request(request: StartRequest) -> None:
    """Check what can be checked without the workflow.

    Raises:
        ValidationError: lists every fault.
    """
    faults = [*_options(request.options), *_engine_members(request.payload)]
    if faults:
        raise ValidationError(faults)


def _options(given: Mapping[str, Any] | None) -> Iterator[Fault]:
    if not given:
        return
    try:
        RunOptions.model_validate(dict(given))
    except PydanticError as error:
        for item in error.errors():
            found = fault_of(dict(given), item)
            yield Fault(f"/options{found.pointer}", found.code, found.detail)


def check_lossless(options: RunOptions, definition: WorkflowDefinition) -> RunOptions:
    """Return the options of a run, which the workflow can honour.

    Raises:
        ValidationError: no message may be lost, and buffers drop some; lists every one.
    """
    if not options.lossless:
        return options
    found = (lossy_buffer(node.node_id, node.policy) for node in definition.nodes)
    faults = [Fault("/options/lossless", "invalid_option", text) for text in found if text]
    if faults:
        raise ValidationError(faults)
    return options


def _engine_members(payload: Any) -> Iterator[Fault]:
    if not isinstance(payload, Mapping):
        return
    if (fault := priority_fault(payload.get("yukta.priority", 0))) is not None:
        yield Fault("/payload/yukta.priority", "invalid_value", fault)
    version = payload.get("yukta.version")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | str)):
        detail = "must be the number of a version, as in the list of the workflow's versions"
        yield Fault("/payload/yukta.version", "invalid_value", detail)


def breakpoints_of(
    given: Sequence[Mapping[str, Any]],
    execution_id: str,
    prepared: PreparedWorkflow,
    settings: Settings,
    pool: BlockingPool,
) -> tuple[SetBreakpoint, ...]:
    """The breakpoints of a start as the commands that will set them.

    Raises:
        ValidationError: one would be refused; lists every fault.
    """
    if not given:
        return ()
    # The commands themselves say what is wrong; this run is made for that and never begins.
    run = Run(prepared, settings=settings, pool=pool)
    made: list[SetBreakpoint] = []
    faults: list[Fault] = []
    for place, point in enumerate(given):
        try:
            made.append(_breakpoint(point, execution_id, run))
        except ValidationError as error:
            faults += [
                Fault(f"/breakpoints/{place}{fault.pointer}", fault.code, fault.detail)
                for fault in error.errors
            ]
    if faults:
        raise ValidationError(faults)
    return tuple(made)


def _breakpoint(point: Mapping[str, Any], execution_id: str, run: Run) -> SetBreakpoint:
    if "executionId" in point:
        detail = "is no field of a breakpoint: the run has no id yet"
        raise ValidationError([Fault("/executionId", "unknown_field", detail)])
    node_id = point.get("nodeId")
    if (fault := id_fault("nodeId", node_id)) is not None:
        raise ValidationError([Fault("/nodeId", "invalid_id", fault)])
    command = SetBreakpoint.parse({**point, "executionId": execution_id})
    try:
        command.check(run)
    except NotFoundError as error:
        detail = f"the workflow has no node {node_id}"
        raise ValidationError([Fault("/nodeId", error.code, detail)]) from None
    except ConflictError as error:
        raise ValidationError([Fault("/nodeId", error.code, error.detail)]) from None
    return command
