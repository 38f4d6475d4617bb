"""SignalWaits: every wait ends once, no signal is lost; contexts that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yukta_rx import Message, NodeContext, processor
from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.durability.stores.input_requests import Answer, RequestState
from yukta_rx.errors import (
    BadInputError,
    ConflictError,
    SignalBufferFullError,
    SignalTimeoutError,
    StoreUnavailableError,
)
from yukta_rx.model.message import trigger_message
from yukta_rx.plugins import signals as module
from yukta_rx.plugins.signals import NodeSignals, Place, SignalWaits
from yukta_rx.streams.clock import LoopClock, PausableClock
from yukta_rx.testing import WorkflowHarness, run_virtual, virtual_time

pytestmark = pytest.mark.feature("CTL-05")


def message(number: int) -> Message:
    return trigger_message("line", "in", number, {"n": number})


class Slow(MemoryInputRequestStore):
    """A store that takes a while for each answer, and once fails."""

    failing = False

    async def _work(self, seconds: float = 0.01) -> None:
        await asyncio.sleep(seconds)
        if self.failing:
            raise StoreUnavailableError("no answer")

    async def ask(self, *args: Any) -> Any:
        await self._work()
        return await super().ask(*args)

    async def answer(self, *args: Any) -> Any:
        await self._work()
        return await super().answer(*args)

    async def close(self, *args: Any) -> Any:
        await self._work()
        return await super().close(*args)

    async def keep(self, *args: Any) -> Any:
        await self._work()
        return await super().keep(*args)


@dataclass
class Bench:
    """One node of one run that waits for signals."""

    store: Any = field(default_factory=MemoryInputRequestStore)
    execution_id: str = "run-1"
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = LoopClock(asyncio.get_running_loop())
        self.clock = PausableClock(clock)
        self.waits = SignalWaits(self.store, clock)
        self.place = Place("s", "w", self.execution_id, "line", "ask")
        self.wall = clock.wall

    @property
    def node(self) -> NodeSignals:
        return self.waits.node(self.place, self.clock, lambda *said: self.events.append(said))

    def wait(self, number: int, name: str = "go", timeout: float | None = 60) -> asyncio.Task[Any]:
        return asyncio.create_task(self.node.wait(name, message(number), timeout=timeout))

    async def send(
        self, decision: str = "yes", name: str = "go", request_id: str | None = None
    ) -> str | None:
        answer = Answer(decision=decision, answered_by="ada", answered_at=self.wall())
        return await self.waits.send(self.place, name, answer, request_id)

    @property
    def open(self) -> list[dict[str, Any]]:
        return self.waits.approvals(lambda _: True)


# --- waits and answers ---------------------------------------------------------------------------


@virtual_time
async def test_the_oldest_wait_of_that_name_gets_the_signal() -> None:
    b = Bench()
    waits = [b.wait(0, "other"), b.wait(1), b.wait(2)]
    await asyncio.sleep(1)

    assert await b.send("first") is not None
    signal = await waits[1]

    assert (signal.name, signal.decision, signal.rejected) == ("go", "first", False)
    assert [task.done() for task in waits] == [False, True, False]
    assert len(b.open) == 2


@virtual_time
async def test_a_named_request_is_answered_and_no_other_and_once() -> None:
    b = Bench()
    waits = [b.wait(1), b.wait(2)]
    await asyncio.sleep(1)
    second = b.open[1]["approvalId"]

    assert await b.send(request_id=second) == second
    assert (await waits[1]).request_id == second
    with pytest.raises(ConflictError) as caught:
        await b.send(request_id=second)

    assert caught.value.code == "already_answered"
    assert not waits[0].done()


@virtual_time
async def test_a_wait_is_in_the_store_before_anything_waits_and_so_is_the_answer() -> None:
    b = Bench()
    task = b.wait(1)
    await asyncio.sleep(1)

    [row] = await b.store.open_requests()
    assert (row.message_id, row.signal, row.remaining) == (message(1).id, "go", 60)
    assert [one["approvalId"] for one in b.open] == [row.request_id]
    await b.send("sure")
    found = await b.store.get(row.request_id)

    assert not task.done()
    assert found.answer.decision == "sure"
    assert (await task).decision == "sure"


@virtual_time
async def test_an_answer_is_given_again_to_the_same_message_and_a_timeout_is_not() -> None:
    b = Bench()
    task = b.wait(1)
    await asyncio.sleep(1)
    await b.send("yes")
    await task
    with pytest.raises(SignalTimeoutError):
        await b.node.wait("go", message(2), timeout=5)

    again = await b.node.wait("go", message(1), timeout=5)
    task = b.wait(2)
    await asyncio.sleep(1)

    assert again.decision == "yes"
    assert not task.done()


@virtual_time
async def test_a_run_that_goes_on_after_a_crash_gets_the_answers_of_the_run_before() -> None:
    first = Bench()
    first.wait(1)
    await asyncio.sleep(1)
    await first.send("yes")

    second = Bench(first.store, "run-2")

    assert (await second.node.wait("go", message(1), timeout=5)).decision == "yes"


@virtual_time
async def test_an_open_request_of_a_run_that_is_gone_is_taken_over_under_its_id() -> None:
    first = Bench()
    first.wait(1)
    await asyncio.sleep(100 / 3)
    asked = first.open[0]

    second = Bench(first.store, "run-2")
    task = second.wait(1, timeout=9999)
    await asyncio.sleep(1)
    [shown] = second.open

    assert (shown["approvalId"], shown["since"]) == (asked["approvalId"], asked["since"])
    assert shown["executionId"] == "run-2"
    await second.send("yes", request_id=asked["approvalId"])
    assert (await task).decision == "yes"


@virtual_time
async def test_two_live_runs_of_one_lineage_ask_each_for_itself() -> None:
    b = Bench()
    other = Place("s", "w", "run-2", "line", "ask")
    there = b.waits.node(other, b.clock, lambda *_: None)
    tasks = [b.wait(1), asyncio.create_task(there.wait("go", message(1), timeout=60))]
    await asyncio.sleep(1)

    assert len({one["approvalId"] for one in b.open}) == 2
    await b.send("here")
    await asyncio.sleep(1)

    assert [task.done() for task in tasks] == [True, False]


@virtual_time
async def test_the_data_of_an_answer_is_a_copy_for_each_who_gets_it() -> None:
    b = Bench()
    data = {"list": [1]}
    answer = Answer(decision="yes", data=data, answered_by="ada", answered_at=b.wall())
    await b.waits.send(b.place, "go", answer)

    one = await b.node.wait("go", message(1), timeout=5)
    one.data["list"].append(2)
    again = await b.node.wait("go", message(1), timeout=5)

    assert again.data == {"list": [1]}


# --- ends ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_cancelled_wait_is_off_the_list_at_once_and_cancelled_in_the_store() -> None:
    b = Bench(Slow())
    task = b.wait(1)
    await asyncio.sleep(1)
    request_id = b.open[0]["approvalId"]

    task.cancel()
    await asyncio.sleep(0)
    assert b.open == []
    await asyncio.sleep(1)

    assert task.cancelled()
    assert (await b.store.get(request_id)).state is RequestState.CANCELLED


@virtual_time
async def test_a_wait_that_is_cancelled_while_it_is_written_leaves_nothing_open() -> None:
    b = Bench(Slow())
    task = b.wait(1)
    await asyncio.sleep(0.005)

    task.cancel()
    await asyncio.sleep(1)

    assert task.cancelled()
    assert b.open == []
    assert list(await b.store.open_requests()) == []


@virtual_time
async def test_an_answer_on_its_way_wins_against_the_end_of_the_time() -> None:
    b = Bench(Slow())
    task = b.wait(1, timeout=10)
    await asyncio.sleep(10.005)
    assert b.open != []

    assert await b.send("just in time") is not None

    assert (await task).decision == "just in time"
    assert [kind for kind, _ in b.events] == ["approval.requested", "approval.answered"]


@virtual_time
async def test_an_answer_after_the_end_of_the_time_is_kept_for_the_next() -> None:
    b = Bench(Slow())
    task = b.wait(1, timeout=10)
    await asyncio.sleep(10.015)

    assert await b.send("late") is None
    with pytest.raises(SignalTimeoutError):
        await task
    assert (await b.node.wait("go", message(2), timeout=5)).decision == "late"


@virtual_time
async def test_a_signal_that_has_its_turn_once_the_run_is_interrupted_is_refused() -> None:
    b = Bench(Slow())
    waits = [b.wait(1), b.wait(2)]
    await asyncio.sleep(1)
    sent = [asyncio.create_task(b.send("first")), asyncio.create_task(b.send("second"))]
    await asyncio.sleep(0.005)
    b.waits.keep_open(b.execution_id)
    for wait in waits:
        wait.cancel()

    assert await sent[0] is not None
    with pytest.raises(ConflictError) as caught:
        await sent[1]
    assert caught.value.code == "signal_not_registered"
    # What it was for is taken over by the run that goes on, and waits for a signal as before.
    found = sorted(b.store._requests.values(), key=lambda one: one.request_id)
    assert [str(one.state) for one in found] == ["ANSWERED", "OPEN"]


@virtual_time
async def test_a_store_that_gives_no_answer_fails_the_wait_and_the_signal() -> None:
    b = Bench(Slow())
    task = b.wait(1)
    await asyncio.sleep(1)
    b.store.failing = True

    with pytest.raises(StoreUnavailableError):
        await b.send()
    with pytest.raises(StoreUnavailableError):
        await b.node.wait("go", message(2), timeout=5)
    b.store.failing = False

    assert await b.send("again") is not None
    assert (await task).decision == "again"


@virtual_time
async def test_the_end_of_a_run_cancels_whatever_ignored_it() -> None:
    b = Bench()
    node, task = b.node, b.wait(1)
    await asyncio.sleep(1)
    request_id = b.open[0]["approvalId"]

    assert b.waits.ended("run-1")
    assert not b.waits.ended("run-1")
    await asyncio.sleep(1)

    assert task.cancelled()
    assert (await b.store.get(request_id)).state is RequestState.CANCELLED
    with pytest.raises(BadInputError, match="has ended"):
        await node.wait("go", message(2), timeout=5)
    assert not b.waits._runs


@virtual_time
async def test_a_wait_without_a_limit_waits_for_ever() -> None:
    b = Bench()
    task = b.wait(1, timeout=None)
    await asyncio.sleep(10**7)

    assert "expiresAt" not in b.open[0]
    await b.send()
    assert (await task).decision == "yes"


@virtual_time
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
async def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(BadInputError, match="seconds above 0"):
        await Bench().node.wait("go", message(1), timeout=seconds)


@virtual_time
async def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(BadInputError, match="signal 'a b'"):
        await Bench().node.wait("a b", message(1), timeout=5)


# --- whatever happens ----------------------------------------------------------------------------

NAMES = st.sampled_from(["go", "stop"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), NAMES, st.sampled_from([0.5, 3.0, 1000.0])),
        st.tuples(st.just("signal"), NAMES),
        st.tuples(st.just("answer"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.sampled_from([0.0, 0.004, 0.5, 2.0, 700.0])),
        st.tuples(st.just("pause")),
        st.tuples(st.just("resume")),
    ),
    max_size=40,
)


class Story:
    """Random waits, signals, answers, cancellations and pauses, and the books of all of them."""

    def __init__(self, store: Any) -> None:
        self.b = Bench(store)
        self.waits: list[asyncio.Task[Any]] = []
        self.signals: list[asyncio.Task[Any]] = []
        self.paused = False

    async def step(self, kind: str, *args: Any) -> None:
        b = self.b
        if kind == "wait":
            name, seconds = args
            self.waits.append(b.wait(len(self.waits), name, seconds))
        elif kind == "signal":
            self.signals.append(asyncio.create_task(b.send(str(len(self.signals)), *args)))
        elif kind == "answer":
            shown = b.open
            if shown:
                one = shown[args[0] % len(shown)]
                said = b.send(str(len(self.signals)), one["signal"], one["approvalId"])
                self.signals.append(asyncio.create_task(said))
        elif kind == "cancel":
            if self.waits:
                self.waits[args[0] % len(self.waits)].cancel()
        elif kind == "pass":
            await asyncio.sleep(args[0])
        elif kind == "pause" and not self.paused:
            self.paused = True
            b.clock.pause()
        elif kind == "resume" and self.paused:
            self.paused = False
            b.clock.resume()

    async def books(self) -> None:
        b = self.b
        if self.paused:
            b.clock.resume()
        await asyncio.sleep(2000)
        # Every wait ended, in exactly one way.
        assert all(task.done() for task in self.waits)
        ends = await asyncio.gather(*self.waits, return_exceptions=True)
        assert all(
            isinstance(end, module.Signal | SignalTimeoutError | asyncio.CancelledError)
            for end in ends
        )
        assert b.open == []
        assert list(await b.store.open_requests()) == []
        # Every signal is delivered once, kept, or refused; none twice.
        sent = await asyncio.gather(*self.signals, return_exceptions=True)
        delivered = Counter(end.decision for end in ends if isinstance(end, module.Signal))
        recorded = {
            row.answer.decision: row
            for row in b.store._requests.values()
            if row.state is RequestState.ANSWERED
        }
        for number, outcome in enumerate(sent):
            decision = str(number)
            assert delivered[decision] <= 1
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, ConflictError | SignalBufferFullError)
                assert decision not in recorded
            elif outcome is not None:
                # Accepted: written down, and given to the wait unless that was cancelled.
                assert recorded[decision].request_id == outcome
        assert sum(delivered.values()) <= len(recorded)
        kinds = Counter(kind for kind, _ in b.events)
        timeouts = sum(isinstance(end, SignalTimeoutError) for end in ends)
        assert kinds["approval.expired"] == timeouts
        accepted = [one for one in sent if isinstance(one, str)]
        assert kinds["approval.answered"] == len(accepted) == len(set(accepted))


@pytest.mark.parametrize("kind", [MemoryInputRequestStore, Slow])
@settings(max_examples=80, deadline=None)
@example(
    # Cancelled while it expires, and once more while that is written.
    steps=[("wait", "go", 0.5), ("pass", 0.5), ("cancel", 0), ("pass", 0.0), ("cancel", 0)]
)
@given(steps=STEPS)
def test_every_wait_ends_once_and_no_signal_is_lost(kind: Any, steps: Any) -> None:
    async def whole() -> None:
        story = Story(kind())
        for step in steps:
            await story.step(*step)
        await story.books()

    run_virtual(whole())


# --- contexts ------------------------------------------------------------------------------------


@processor("TWICE", signals=True)
async def twice(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Ask two people, one after the other."""
    first = await ctx.signals.wait("first", msg, timeout=None)
    second = await ctx.signals.wait("second", msg, timeout=None, prompt=first.decision)
    if ctx.attempt == 1:
        raise ConnectionError("once more")
    return [first.decision, second.decision]


@processor("DEAF")
async def deaf(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Wait without having said so."""
    await ctx.signals.wait("first", msg, timeout=None)


def graph(kind: str, **config: Any) -> dict[str, Any]:
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 2}},
            {"nodeId": "ask", "type": kind, "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
    }


@virtual_time
async def test_any_plugin_may_wait_and_a_second_attempt_gets_the_answers_again() -> None:
    document = graph("TWICE", engine={"retry": {"maxAttempts": 2}})
    async with WorkflowHarness(document, [twice]) as h:
        await h.advance(100_000)
        for name in ("first", "second", "first", "second"):
            assert await h.signal("ask", name, f"{name}!")
            await h.advance(1)
        await h.until(status="SUCCESS")

        assert h.results("out").payloads == [["first!", "second!"]] * 2
        asked = [event.data for event in h.events if event.type == "approval.requested"]
        assert [one.get("prompt") for one in asked] == [None, "first!"] * 2


@virtual_time
async def test_a_plugin_that_does_not_declare_it_cannot_wait() -> None:
    async with WorkflowHarness(graph("DEAF"), [deaf]) as h:
        await h.until(status="FAILURE")

        assert "signals=True" in h.error["detail"]


@virtual_time
async def test_a_message_that_waits_is_a_sign_of_life_and_then_the_idle_clock_goes_on() -> None:
    @processor("STUCK", signals=True, default_timeout=5)
    async def stuck(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        """Wait, then hang."""
        await ctx.signals.wait("go", msg, timeout=None)
        await asyncio.sleep(10**6)

    async with WorkflowHarness(graph("STUCK"), [stuck]) as h:
        await h.advance(1000)
        assert h.node("ask").status == "RUNNING"
        await h.signal("ask", "go")
        await h.until(node="ask", status="TIMED_OUT", within=10)


def test_the_option_that_says_how_many_must_exist() -> None:
    with pytest.raises(TypeError, match="no option at_once"):

        @processor("WRONG", calls="at_once")
        async def wrong(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
            """Name an option that is not there."""
