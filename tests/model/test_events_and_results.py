"""The event vocabulary and the items of the results channel, as they are shown."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.codec import decode, encode
from yukta_rx.model.events import EVENT_TYPES, SAMPLE_TYPES, ExecutionEvent
from yukta_rx.model.message import Message
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import exact, rfc3339, utc_now

WHEN = datetime(2026, 11, 30, 20, 29, 0, 125_999, tzinfo=UTC)


def test_times_are_shown_in_utc_with_milliseconds():
    elsewhere = WHEN.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert rfc3339(WHEN) == rfc3339(elsewhere) == "2026-11-30T20:29:00.125Z"


def test_a_time_without_a_zone_cannot_be_shown():
    with pytest.raises(ValueError, match="without a zone"):
        rfc3339(WHEN.replace(tzinfo=None))


@given(st.datetimes(), st.integers(-1439, 1439), st.sampled_from([0, 1, 999, 1000, 999_999]))
def test_times_are_written_as_isoformat_writes_them_whatever_their_zone(time, minutes, micros):
    zone = timezone(timedelta(minutes=minutes))
    time = time.replace(year=max(2, min(time.year, 9998)), microsecond=micros, tzinfo=zone)
    in_utc = time.astimezone(UTC)

    assert exact(time) == in_utc.isoformat()
    assert rfc3339(time) == in_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert datetime.fromisoformat(exact(time)) == time


def test_the_current_time_has_a_zone():
    assert utc_now().tzinfo is UTC


@pytest.mark.feature("OBS-01")
def test_the_samples_are_among_the_event_types_and_connection_frames_are_not():
    assert SAMPLE_TYPES < EVENT_TYPES
    assert not any(name.startswith("stream.") for name in EVENT_TYPES)
    assert {"execution.finished", "node.status", "edge.dropped", "control.applied"} < EVENT_TYPES
    assert len(EVENT_TYPES) == 34


@pytest.mark.feature("OBS-01")
def test_an_event_of_a_node_is_shown_in_camel_case():
    event = ExecutionEvent(
        type="node.status",
        time=WHEN,
        session_id="s",
        workflow_id="w",
        execution_id="e",
        node_id="n",
        data={"status": "RUNNING"},
    )

    assert event.as_dict() == {
        "type": "node.status",
        "time": "2026-11-30T20:29:00.125Z",
        "sessionId": "s",
        "workflowId": "w",
        "executionId": "e",
        "nodeId": "n",
        "data": {"status": "RUNNING"},
    }


@pytest.mark.feature("OBS-01")
def test_an_event_of_the_whole_run_names_no_node():
    event = ExecutionEvent(
        type="execution.started", time=WHEN, session_id="s", workflow_id="w", execution_id="e"
    )

    assert "nodeId" not in event.as_dict()


@pytest.mark.feature("OBS-03")
def test_a_result_shows_its_message_even_when_the_payload_is_null():
    result = ResultEvent(
        cursor=7,
        type=ResultType.RESULT,
        time=WHEN,
        node_id="n",
        message=Message.of(None, {"a": 1}, "m"),
    )

    assert result.as_dict() == {
        "cursor": "7",
        "type": "RESULT",
        "nodeId": "n",
        "messageId": "m",
        "headers": {"a": 1},
        "payload": None,
        "time": "2026-11-30T20:29:00.125Z",
    }


@pytest.mark.feature("OBS-03")
def test_an_end_shows_status_and_totals_and_no_message():
    end = ResultEvent(
        cursor=8,
        type=ResultType.EXECUTION_END,
        time=WHEN,
        status=TaskStatus.SUCCESS,
        truncated=False,
        totals={"in": 3},
    )

    shown = end.as_dict()

    assert shown == {
        "cursor": "8",
        "type": "EXECUTION_END",
        "status": "SUCCESS",
        "truncated": False,
        "totals": {"in": 3},
        "time": "2026-11-30T20:29:00.125Z",
    }
    assert decode(encode(shown)) == shown
