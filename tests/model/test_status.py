"""The status of a run or node only moves forward."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.model.status import TaskStatus, advance

pytestmark = pytest.mark.feature("ENG-06")

OPEN = [TaskStatus.PENDING, TaskStatus.QUEUED, TaskStatus.RUNNING]
TERMINAL = [status for status in TaskStatus if status not in OPEN]


def test_the_statuses_are_those_of_the_enumeration():
    assert [str(status) for status in TaskStatus] == [
        *("PENDING", "QUEUED", "RUNNING", "SUCCESS", "FAILURE", "ERROR", "STOPPED", "CANCELLED"),
        *("TIMED_OUT", "SKIPPED", "UPSTREAM_FAILED", "ABORTED"),
    ]


def test_pending_queued_and_running_are_in_order_below_every_terminal_status():
    assert [status.rank for status in OPEN] == [0, 1, 2]
    assert {status.rank for status in TERMINAL} == {3}
    assert all(status.terminal for status in TERMINAL)
    assert not any(status.terminal for status in OPEN)


@pytest.mark.parametrize("end", TERMINAL)
def test_a_terminal_status_is_never_left(end):
    assert {advance(end, new) for new in TaskStatus} == {end}


@given(st.lists(st.sampled_from(TaskStatus)))
def test_any_order_of_reports_moves_forward_only_and_keeps_the_first_end(reports):
    status, seen = TaskStatus.PENDING, []
    for report in reports:
        status = advance(status, report)
        seen.append(status.rank)

    assert seen == sorted(seen)
    ends = [report for report in reports if report.terminal]
    assert status.terminal == bool(ends)
    assert not ends or status is ends[0]
