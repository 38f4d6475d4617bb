"""EventFilter: what a client asks for, and what fits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from yukta_rx.errors import BadRequestError
from yukta_rx.model.events import EVENT_TYPES, ExecutionEvent
from yukta_rx.observe.filters import EventFilter, matching_types


def event(type: str = "node.status", **members: str | None) -> ExecutionEvent:
    given = {"session_id": "s", "workflow_id": "w", "execution_id": "r", "node_id": "n"} | members
    return ExecutionEvent(type=type, time=datetime.now(UTC), **given)


@pytest.mark.feature("OBS-01")
def test_members_may_be_repeated_or_comma_lists() -> None:
    wanted = EventFilter.parse(execution_id=["a, b", "c"], type=["node.status", "edge.*"])

    assert wanted.execution_ids == {"a", "b", "c"}
    assert wanted.types == {"node.status", "edge.*"}


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({}, True),
        ({"type": ["node.*"]}, True),
        ({"type": ["edge.*", "execution.status"]}, False),
        ({"execution_id": ["r"], "session_id": ["s"], "workflow_id": ["w"]}, True),
        ({"execution_id": ["r"], "session_id": ["other"]}, False),
        ({"workflow_id": ["other"]}, False),
        ({"node_id": ["n"]}, True),
        ({"node_id": ["m"]}, False),
    ],
)
def test_an_event_is_wanted_if_every_member_fits(asked: dict[str, list[str]], fits: bool) -> None:
    assert EventFilter.parse(**asked).matches(event()) is fits


def test_an_event_of_a_whole_run_fits_no_node() -> None:
    wanted = EventFilter.parse(node_id=["n"])

    assert not wanted.matches(event("execution.status", node_id=None))


@pytest.mark.parametrize(
    ("member", "parameter", "text"),
    [
        ("type", "type", "node.nothing"),
        ("type", "type", "*"),
        ("type", "type", "node*"),
        ("type", "type", "node.**"),
        ("type", "type", "nodes.*"),
        ("type", "type", "stream.hello"),
        ("execution_id", "executionId", "a/b"),
        ("session_id", "sessionId", "x\nevent: spoof"),
        ("workflow_id", "workflowId", "é"),
        ("node_id", "nodeId", "x" * 300),
    ],
)
@pytest.mark.feature("OBS-01")
def test_case_31_a_wrong_filter_is_refused_naming_the_parameter(
    member: str, parameter: str, text: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        EventFilter.parse(**{member: [text]})

    assert caught.value.code == "invalid_parameter"
    assert caught.value.members["parameter"] == parameter
    assert "\n" not in caught.value.detail


def test_every_type_and_every_family_is_known() -> None:
    for name in EVENT_TYPES:
        assert matching_types(name) == {name}
        assert name in matching_types(name.partition(".")[0] + ".*")


def test_samples_are_taken_unless_only_facts_are_asked_for() -> None:
    assert EventFilter().takes_samples
    assert EventFilter.parse(type=["node.*"]).takes_samples
    assert not EventFilter.parse(type=["control.*", "node.status"]).takes_samples


def test_the_filter_is_shown_as_it_was_asked_for() -> None:
    wanted = EventFilter.parse(type=["node.*"], execution_id=["b,a"])

    assert wanted.as_dict() == {"executionId": ["a", "b"], "type": ["node.*"]}
