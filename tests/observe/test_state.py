"""RunState: forward only, whatever the order of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.events import EVENT_TYPES, ExecutionEvent
from yukta_rx.model.status import TaskStatus
from yukta_rx.observe.state import RunState

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(type: str, node: str | None = None, at: float = 0, **data: Any) -> ExecutionEvent:
    return ExecutionEvent(
        type=type,
        time=START + timedelta(seconds=at),
        session_id="s",
        workflow_id="w",
        execution_id="r",
        node_id=node,
        data=data,
    )


def new() -> RunState:
    return RunState("r", "s", "w", lambda: START + timedelta(seconds=60))


@pytest.mark.feature("OBS-01")
def test_the_summary_of_a_run_follows_its_events() -> None:
    run = new()
    run.describe({"actor": "key:ci", "labels": {"env": "test"}, "via": "REST"})
    run.apply(event("execution.queued", at=1, position=1, reason="limit"))
    run.apply(event("execution.started", at=2, definitionVersion="v1"))
    run.apply(event("execution.status", at=2, status="RUNNING", previous="QUEUED", version=2))
    assert run.as_dict(paused=True) == {
        "executionId": "r",
        "sessionId": "s",
        "workflowId": "w",
        "definitionVersion": "v1",
        "status": "RUNNING",
        "startTime": "2026-01-01T00:00:02.000Z",
        "queuedTime": "2026-01-01T00:00:01.000Z",
        "durationMs": 58_000,
        "depth": 0,
        "actor": "key:ci",
        "labels": {"env": "test"},
        "paused": True,
        "recorded": True,
    }

    error = {"code": "node_failed", "detail": "no", "nodeId": "n"}
    run.apply(event("execution.finished", at=5, status="FAILURE", error=error, totals={"in": 1}))
    shown = run.as_dict()
    assert (shown["status"], shown["error"], shown["durationMs"]) == ("FAILURE", error, 3000)
    assert shown["endTime"] == "2026-01-01T00:00:05.000Z"
    assert run.totals == {"in": 1}


@pytest.mark.feature("ENG-06")
@pytest.mark.parametrize(
    "late",
    [
        event("execution.status", status="RUNNING", previous="PENDING", version=1),
        event("execution.finished", status="FAILURE", totals={}),
        event("execution.started", definitionVersion="v2"),
        event("node.status", "n", status="SUCCESS", previous="RUNNING"),
        event("node.stats", "n"),
        event("edge.dropped", count=1, sample=[]),
    ],
    ids=lambda late: late.type,
)
def test_case_22_what_comes_after_the_end_of_a_run_changes_nothing(late: ExecutionEvent) -> None:
    run = new()
    run.apply(event("execution.started", definitionVersion="v1"))
    run.apply(event("node.status", "n", status="RUNNING", previous="PENDING"))
    run.apply(event("execution.finished", status="STOPPED", totals={}))
    before = run.as_dict(), run.counts(), run.version

    assert not run.apply(late)
    assert (run.as_dict(), run.counts(), run.version) == before


def test_a_command_for_a_run_that_ended_is_still_an_event() -> None:
    run = new()
    run.apply(event("execution.finished", status="SUCCESS", totals={}))

    assert run.apply(event("control.rejected", command="PauseWorkflow"))


def test_a_status_after_the_first_end_of_a_node_is_not_accepted() -> None:
    run = new()
    assert run.apply(event("node.status", "n", status="RUNNING", at=1))
    assert run.apply(event("node.status", "n", status="SUCCESS", at=3))
    assert not run.apply(event("node.status", "n", status="RUNNING", at=4))
    assert not run.apply(event("node.status", "n", status="FAILURE", at=5))

    assert run.nodes["n"].status is TaskStatus.SUCCESS
    assert run.nodes["n"].seconds == 2


def test_a_node_that_never_began_took_no_time() -> None:
    run = new()
    run.apply(event("node.status", "n", status="CANCELLED"))

    assert run.nodes["n"].seconds is None
    assert run.counts() == {"CANCELLED": 1}


def test_a_run_found_without_an_end_is_aborted() -> None:
    run = new()
    run.apply(event("execution.started", definitionVersion="v1"))
    assert run.apply(event("execution.aborted"))
    assert not run.apply(event("execution.status", status="RUNNING", version=1))

    assert run.status is TaskStatus.ABORTED


STATUSES = st.sampled_from(list(TaskStatus))
EVENTS = st.one_of(
    st.builds(lambda s: event("execution.status", status=str(s), version=1), STATUSES),
    st.builds(lambda n, s: event("node.status", n, status=str(s)), st.sampled_from("ab"), STATUSES),
    st.builds(
        lambda s: event("execution.finished", status=str(s), totals={}),
        st.sampled_from([status for status in TaskStatus if status.terminal]),
    ),
    st.sampled_from(
        [
            event("execution.queued", position=1, reason="limit"),
            event("execution.started", definitionVersion="v"),
            event("execution.aborted"),
        ]
    ),
    st.sampled_from(sorted(EVENT_TYPES - {"execution.status", "execution.finished", "node.status"}))
    .map(event),
)  # fmt: skip


@pytest.mark.feature("OBS-01")
@given(st.lists(EVENTS, max_size=30))
def test_case_23_no_order_of_events_moves_anything_back(events: list[ExecutionEvent]) -> None:
    run = new()
    finished = 0
    for one in events:
        before = run.status, run.version, {key: node.status for key, node in run.nodes.items()}
        accepted = run.apply(one)

        assert run.status.rank >= before[0].rank
        assert not before[0].terminal or run.status is before[0]
        assert run.version == before[1] + (run.status is not before[0])
        for node_id, status in before[2].items():
            after = run.nodes[node_id].status
            assert after.rank >= status.rank
            assert not status.terminal or after is status
        if one.type == "execution.status":
            assert accepted == (run.status is not before[0])
        finished += accepted and one.type == "execution.finished"
    assert finished == run.ended
    assert finished <= 1
