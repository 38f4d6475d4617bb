"""Runs that a crash cut off at any place, and that go on with what was written before it.

`YUKTA_TEST_EXAMPLES=50000` looks at as many graphs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.logged import LoggedCheckpointStore
from tests.engine.test_against_interpreter import ENDS_WELL, EXAMPLES, called, graphs
from tests.engine.test_against_interpreter import Scene as Example
from yukta_rx.config.settings import Settings
from yukta_rx.control.resume_plan import plan_resume
from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.durability.stores.checkpoints import counting_rows
from yukta_rx.engine.replay import NO_REPLAY, Replay
from yukta_rx.engine.run import Run
from yukta_rx.streams.aio import Tasks
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.definitions.prepare import PreparedWorkflow

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")


class Crashes:
    """A workflow that is run, and gone on with after crashes.

    Args:
        prepared: the workflow.
        delay: seconds that a write takes; None: none.
        row: messages in a row.
        settings: of the runs.
        before: told of each run before it is executed.
    """

    def __init__(
        self,
        prepared: PreparedWorkflow,
        *,
        delay: float | None = None,
        row: int = 4,
        settings: Settings | None = None,
        before: Callable[[Run], None] = lambda _run: None,
    ) -> None:
        self.prepared = prepared
        self.delay = delay
        self.row = row
        self.settings = settings or Settings()
        self.before = before
        self.results: list[Any] = []
        self.failures = 0

    async def run(self, store: LoggedCheckpointStore, name: str, replay: Replay = NO_REPLAY) -> Any:
        """Execute a run that is recorded; returns how it ended."""
        tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        recorder = RunRecorder(store, name, tasks, self._failed, self.row)
        self.results = []
        made = Run(
            self.prepared,
            settings=self.settings,
            publish=self.results.append,
            execution_id=name,
            lineage="lineage",
            timeout=None,
            recorder=recorder,
            replay=replay,
        )
        self.before(made)
        outcome = await made.execute()
        recorder.close()
        await tasks.ended()
        return outcome

    def _failed(self) -> None:
        self.failures += 1

    async def resume(self, store: LoggedCheckpointStore, old: str, new: str) -> tuple[Any, Any]:
        """Go on with a run; returns the plan and how it ended."""
        plan = plan_resume(self.prepared, await store.states(old))
        await store.carry_over(
            old, new, sorted(plan.replayed | plan.finished | plan.passed | plan.partial)
        )

        def rows(node: str) -> Any:
            whole = not store.claim_bytes
            return lambda: counting_rows(lambda: store.read(new, node, whole=whole))

        replay = Replay(
            outputs={node: rows(node) for node in plan.replayed},
            partial={node: rows(node) for node in plan.partial},
            finished=plan.finished,
            passed=plan.passed,
        )
        return plan, await self.run(store, new, replay)

    def shown(self) -> Counter[Any]:
        """The results, whatever their order."""
        return Counter(
            (item.node_id, item.message_id, str(item.payload))
            for item in self.results
            if item.type == "RESULT"
        )


async def listed(store: LoggedCheckpointStore, run: str) -> Counter[tuple[str, str]]:
    """The inputs that the nodes of a run have finished, as its record says."""
    found: Counter[tuple[str, str]] = Counter()
    for node in await store.states(run):
        async for row in counting_rows(lambda node=node: store.read(run, node)):
            found.update((node, made) for made, _ in row.inputs)
    return found


class Whole:
    """The run that no crash cut off.

    Attributes:
        results: its results.
        log: what it wrote.
        inputs: the inputs of its nodes, with the number of times that each came.
        calls: the calls of its plugins.
    """

    def __init__(
        self, results: Counter[Any], log: list[Any], inputs: Counter[Any], calls: Counter[Any]
    ) -> None:
        self.results = results
        self.log = log
        self.inputs = inputs
        self.calls = calls

    def allowed(self, call: tuple[str, str], done: Counter[Any]) -> float:
        """How often a plugin may be called for a message that was finished `done` times."""
        came = self.inputs[call]
        return self.calls[call] * (came - done[call]) / came if came else float("inf")


async def check_resumed(
    crashes: Crashes, whole: Whole, calls: list[Any], log: list[Any], old: str, new: str
) -> list[Any]:
    """Go on after a crash that left `log`: the results are whole, and nothing is done again."""
    store = LoggedCheckpointStore(log, crashes.delay)
    states, done = await store.states(old), await listed(store, old)
    calls.clear()
    plan, outcome = await crashes.resume(store, old, new)

    errors = [node["error"] for node in outcome.nodes.values() if "error" in node]
    assert {node["status"] for node in outcome.nodes.values()} <= ENDS_WELL, errors
    assert crashes.shown() == whole.results, (plan, states)
    for call, times in Counter(calls).items():
        assert call[0] not in states or not states[call[0]].complete, "a node that had finished"
        assert times <= whole.allowed(call, done), "an input that was finished"
    assert {node for node, _ in calls} <= plan.partial | plan.again
    known = await store.states(new)
    assert all(known[name].complete for name in crashes.prepared.nodes)
    return store.log


async def crash_everywhere(crashes: Crashes, calls: list[Any]) -> int:
    """Crash at every write, and once more at one of those of the run that goes on."""
    store = LoggedCheckpointStore(delay=crashes.delay)
    calls.clear()
    outcome = await crashes.run(store, "run")
    assert {node["status"] for node in outcome.nodes.values()} <= ENDS_WELL, outcome.nodes
    inputs = await listed(store, "run")
    whole = Whole(crashes.shown(), list(store.log), inputs, Counter(calls))
    for place in range(len(whole.log) + 1):
        again = await check_resumed(crashes, whole, calls, whole.log[:place], "run", "again")
        begins = next(n for n, line in enumerate(again) if line[1] == "again") + 1
        # Another place each time, so all of them are tried in the end.
        cut = begins + place * 7 % (len(again) + 1 - begins)
        await check_resumed(crashes, whole, calls, again[:cut], "again", "third")
    return len(whole.log)


# --- any graph -----------------------------------------------------------------------------------


def resumable(specs: Any) -> Any:
    """The graph without what ends a node badly, or depends on timing."""
    made = []
    for spec in specs:
        fails = spec.on_error == "FAIL" and spec.work.fails >= spec.attempts
        work = replace(spec.work, fails=0) if fails or spec.work.bad_input else spec.work
        buffer = spec.buffer if spec.buffer and spec.buffer[0] in ("BLOCK", "SPILL") else None
        count = min(spec.count, 7)
        made.append(replace(spec, work=work, buffer=buffer, budget=None, count=count))
    return made


async def play(specs: Any, delay: float | None, row: int) -> None:
    example = Example(specs)

    def before(run: Run) -> None:
        for spec in specs:
            if spec.skipped and not run._replay.replaces(spec.name):
                run.node(spec.name).skip(True)

    crashes = Crashes(example.run.prepared, delay=delay, row=row, before=before)
    await crash_everywhere(crashes, called)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(
    max_examples=max(1, EXAMPLES // 5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
@given(
    specs=graphs().map(resumable),
    delay=st.sampled_from([None, 0.01, 0.3]),
    row=st.sampled_from([1, 4, 100]),
)
def test_any_graph_goes_on_after_any_crash(specs: Any, delay: float | None, row: int) -> None:
    run_virtual(play(specs, delay, row))
