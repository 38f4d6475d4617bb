"""What the execution log says of starts, and in place of what it cannot say. Feature: DUR-01."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from yukta_rx.model.codec import canonical
from yukta_rx.model.execution_log import (
    IdempotencyKey,
    LogEvent,
    RunAborted,
    RunFinished,
    RunStarted,
)
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.frames import showable

if TYPE_CHECKING:
    from datetime import timedelta

    from yukta_rx.control.start_request import Plan
    from yukta_rx.streams.clock import LoopClock


def interrupted(event: RunFinished) -> RunAborted:
    """The end of a run that a shutdown cut off: the same as if the server had died."""
    reason = (event.error or {}).get("detail", "the server was shut down while it ran")
    return RunAborted(execution_id=event.execution_id, time=event.time, reason=reason)


def start_event(plan: Plan, clock: LoopClock) -> RunStarted:
    """The start of a run as the log keeps it."""
    asked, about = plan.request, plan.about
    return RunStarted(
        execution_id=plan.execution_id,
        time=clock.wall(),
        session_id=asked.session_id,
        workflow_id=asked.workflow_id,
        definition_version=plan.prepared.version,
        payload=asked.payload,
        actor=asked.actor,
        via=asked.via,
        lineage=plan.lineage or plan.execution_id,
        options=plan.options.model_dump(mode="json", by_alias=True),
        labels=dict(asked.labels),
        step_mode=asked.step_mode,
        breakpoints=tuple({"nodeId": p.node_id, **p.arguments()} for p in plan.breakpoints),
        depth=about.get("depth", 0),
        parent_execution_id=about.get("parentExecutionId"),
        resumed_from=about.get("resumedFrom"),
        restarted_from=about.get("restartedFrom"),
    )


def key_of(plan: Plan, event: RunStarted, ttl: timedelta) -> IdempotencyKey:
    """The key of a request, in force from the start on."""
    return IdempotencyKey(
        execution_id=event.execution_id,
        time=event.time,
        session_id=event.session_id,
        workflow_id=event.workflow_id,
        key=plan.request.idempotency_key or "",
        fingerprint=sha256(canonical(plan.request.body())).hexdigest(),
        expires_at=event.time + ttl,
    )


def writable(event: LogEvent) -> LogEvent:
    """The event with a mark in place of each part that JSON cannot say."""
    changed = {
        name: showable(value)
        for name in event.__struct_fields__
        if isinstance(value := getattr(event, name), str | Mapping)
        and not isinstance(value, TaskStatus)
    }
    return msgspec.structs.replace(event, **changed)
