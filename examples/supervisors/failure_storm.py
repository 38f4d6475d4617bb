"""Pauses a run whose messages fail too often: the same supervisor in both forms.

In a server, as a program of its own, or installed as entry point `yukta_rx.supervisors`:

    yukta supervise examples/supervisors/failure_storm.py:PauseOnFailureStorm
    yukta supervise examples/supervisors/failure_storm.py:pause_on_failure_storm
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import timedelta

from reactivex import operators as ops

from yukta_rx import ExecutionSupervisor, PauseWorkflow

LIMIT = 3
WINDOW = timedelta(seconds=60)


class PauseOnFailureStorm(ExecutionSupervisor):
    """Pauses a run after `limit` failed messages within `window`; in Rx."""

    id = "failure-storm"
    types = ("node.message_failed",)

    def __init__(self, limit=LIMIT, window=WINDOW, scheduler=None):
        self.limit = limit
        self.window = window
        self.scheduler = scheduler

    def supervise(self, events):
        def storms(failures):
            return failures.pipe(
                ops.timestamp(self.scheduler),
                ops.scan(self.recent, []),
                ops.filter(lambda recent: len(recent) >= self.limit),
                ops.take(1),
                ops.map(lambda recent: pause(failures.key, len(recent))),
            )

        return events.pipe(
            ops.filter(lambda event: event.type == "node.message_failed"),
            ops.group_by(lambda event: event.execution_id),
            ops.flat_map(storms),
        )

    def recent(self, before, failure):
        """The failures of the window that ends with this one."""
        begin = failure.timestamp - self.window
        return [*(one for one in before if one.timestamp > begin), failure]


async def pause_on_failure_storm(events):
    """The same as an async generator: what most people write."""
    failures = defaultdict(deque)
    async for event in events:
        if event.type == "execution.finished":
            failures.pop(event.execution_id, None)
        if event.type != "node.message_failed":
            continue
        recent = failures[event.execution_id]
        recent.append(event.time)
        while recent[0] <= event.time - WINDOW:
            recent.popleft()
        if len(recent) == LIMIT:
            yield pause(event.execution_id, len(recent))


pause_on_failure_storm.id = "failure-storm"
pause_on_failure_storm.types = ("node.message_failed", "execution.finished")


def pause(execution_id, failures):
    """The command, with its reason for the audit."""
    return PauseWorkflow(execution_id, reason=f"{failures} messages failed")
