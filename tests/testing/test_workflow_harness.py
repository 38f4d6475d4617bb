"""WorkflowHarness: whole workflows in virtual time, watched, steered and drawn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import Message, NodeContext, TaskStatus, processor
from yukta_rx.errors import DefinitionError, NotFoundError
from yukta_rx.model.workflow import WorkflowDefinition
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing import WorkflowHarness, run_virtual, virtual_time

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("EXT-01")


@processor("SLOW", default_timeout=None)
async def slow(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
    """Take two seconds for each message, and fail at 13."""
    await ctx.clock.sleep(2)
    ctx.log(f"did {msg.payload['n']}")
    if msg.payload["n"] == 13:
        raise LookupError("thirteen")
    return msg


def numbers(count: int = 3, start: int = 0, every_ms: int = 0) -> dict[str, Any]:
    """Numbers, two seconds for each, a terminal."""
    config = {"count": count, "start": start, "intervalMs": every_ms}
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": config},
            {"nodeId": "slow", "type": "SLOW"},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "numbers", "target": "slow"},
            {"source": "slow", "target": "out"},
        ],
    }


LOOKUP = {"a": {"n": 0}, "b": {"n": 1}, "c": {"n": 2}}


def harness(definition: dict[str, Any] | None = None, **options: Any) -> WorkflowHarness:
    return WorkflowHarness(definition or numbers(), [slow], **options)


# -- running


@virtual_time
async def test_a_workflow_runs_to_its_end_in_no_time() -> None:
    start = time.perf_counter()
    async with harness(numbers(count=1000, start=100)) as h:
        await h.until(status="SUCCESS")

        assert h.status is TaskStatus.SUCCESS
        assert h.error is None
        assert h.now == 2000
        assert h.results("out").payloads == [{"n": n} for n in range(100, 1100)]
        assert h.node("slow").outputs.ids != h.node("numbers").outputs.ids
    assert time.perf_counter() - start < 10


@virtual_time
async def test_a_definition_may_be_an_object() -> None:
    async with harness(WorkflowDefinition.model_validate(numbers())) as h:
        await h.until(status="SUCCESS")

        assert len(h.results("out")) == 3


@virtual_time
async def test_the_start_payload_reaches_the_nodes() -> None:
    definition = numbers()
    definition["nodes"][0] = {"nodeId": "numbers", "type": "API_TRIGGER"}

    async with harness(definition, payload={"n": 5}) as h:
        await h.until(status="SUCCESS")

        assert h.results("out").payloads == [{"n": 5}]


def test_files_of_its_folder_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    definition = numbers()
    options = {"path": "rows.jsonl", "format": "jsonl"}
    definition["nodes"][0] |= {"type": "FILE_TRIGGER", "config": options}
    # That the file is there is looked at here, before a loop runs.
    made = harness(definition, base_dir=tmp_path)

    async def main() -> list[Any]:
        async with made as h:
            await h.until(status="SUCCESS")
            return h.results("out").payloads

    assert run_virtual(main()) == [{"n": 1}]


@virtual_time
async def test_a_definition_that_is_wrong_is_refused_with_every_fault() -> None:
    definition = numbers()
    definition["edges"][0]["target"] = "nowhere"

    with pytest.raises(DefinitionError, match="nowhere"):
        harness(definition)


@virtual_time
async def test_leaving_cancels_what_still_runs() -> None:
    async with harness() as h:
        await h.until(node="slow", status="RUNNING")

    assert h.status is TaskStatus.CANCELLED
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@virtual_time
async def test_a_harness_runs_once() -> None:
    h = harness()
    with pytest.raises(RuntimeError, match="that starts the run"):
        assert h.status
    async with h:
        pass

    with pytest.raises(RuntimeError, match="runs its workflow once"):
        await h.__aenter__()


def test_real_time_is_refused() -> None:
    async def main() -> None:
        async with harness():
            pass

    with pytest.raises(TypeError, match="WorkflowHarness needs virtual time"):
        asyncio.run(main())


# -- waiting


@virtual_time
async def test_until_waits_for_the_status_of_a_node_or_of_the_run() -> None:
    async with harness() as h:
        await h.until(status="RUNNING")
        await h.until(node="slow", status="RUNNING")
        assert h.now == 0

        await h.until(node="numbers", status="SUCCESS")
        assert h.now == 0
        await h.until(node="out", status="SUCCESS")
        assert h.now == 6


@virtual_time
async def test_a_status_that_has_passed_was_reached() -> None:
    async with harness() as h:
        await h.until(status="SUCCESS")

        await h.until(node="slow", status="RUNNING")
        await h.until(status="RUNNING")
        assert h.now == 6


@virtual_time
async def test_until_waits_for_an_event() -> None:
    async with harness() as h:
        await h.until(event="node.log", node="slow")
        assert h.now == 2
        await h.until(event="execution.finished")

        assert h.now == 6
        assert [event.type for event in h.events][:2] == ["execution.started", "execution.status"]
        assert h.events[-1].type == "execution.finished"


@virtual_time
async def test_until_waits_for_a_condition() -> None:
    async with harness() as h:
        await h.until(lambda h: len(h.results("out")) == 2)

        assert h.now == 4
        assert h.status is TaskStatus.RUNNING


@virtual_time
async def test_what_cannot_come_any_more_is_told_at_once() -> None:
    async with harness(numbers(count=2, start=12)) as h:
        with pytest.raises(
            AssertionError, match="status SUCCESS of node slow cannot come any more"
        ):
            await h.until(node="slow", status="SUCCESS")
        with pytest.raises(AssertionError, match=r"the run is FAILURE, .*thirteen.*; numbers SUCC"):
            await h.until(status="SUCCESS")
        with pytest.raises(AssertionError, match=r"an event node\.dead_letter of node slow cannot"):
            await h.until(event="node.dead_letter", node="slow")
        with pytest.raises(AssertionError, match="what the condition asks for cannot come"):
            await h.until(lambda h: len(h.results("out")) == 2)

        assert h.now == 4


@virtual_time
async def test_what_does_not_come_in_time_is_told() -> None:
    async with harness() as h:
        with pytest.raises(AssertionError, match=r"status SUCCESS did not come in 5 s of virtual"):
            await h.until(status="SUCCESS", within=5)

        assert h.now == 5
        await h.until(status="SUCCESS")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"status": "DONE"}, "no status 'DONE'; there are PENDING"),
        ({"event": "node.gone"}, r"no event 'node\.gone'; there are "),
        ({}, "until waits for one thing"),
        ({"node": "slow"}, "until waits for one thing"),
        ({"status": "SUCCESS", "event": "node.log"}, "until waits for one thing"),
    ],
)
@virtual_time
async def test_what_there_is_not_cannot_be_waited_for(asked: dict[str, str], told: str) -> None:
    async with harness() as h:
        with pytest.raises(ValueError, match=told):
            await h.until(**asked)
        assert h.now == 0


@virtual_time
async def test_a_node_that_there_is_not_is_told() -> None:
    async with harness() as h:
        with pytest.raises(NotFoundError, match="nothing"):
            await h.until(node="nothing", status="SUCCESS")
        with pytest.raises(NotFoundError, match="nothing"):
            h.node("nothing")
        with pytest.raises(NotFoundError, match="nothing"):
            h.results("nothing")


# -- looking


@virtual_time
async def test_a_node_tells_its_failure_and_its_log() -> None:
    async with harness(numbers(count=2, start=12)) as h:
        await h.until(status="FAILURE")

        node = h.node("slow")
        assert node.status is TaskStatus.FAILURE
        assert node.error is not None
        assert isinstance(node.error.exception, LookupError)
        assert node.error.message_id == h.node("numbers").outputs[1].id
        assert node.logs == [("did 12", "stdout"), ("did 13", "stdout")]
        assert h.node("numbers").error is None
        assert h.error == {"code": "node_failed", "detail": "thirteen", "nodeId": "slow"}


# -- steering


@virtual_time
async def test_a_paused_run_stands_still_while_time_passes() -> None:
    async with harness(lookup=LOOKUP) as h:
        await h.until(lambda h: len(h.results("out")) == 1)
        assert h.pause() is True
        assert h.pause() is False
        await h.advance(100)

        # The call that was out, and its clock with it, stands still too.
        assert h.results("out").payloads == [{"n": 0}]
        assert h.resume() is True
        assert h.resume() is False
        await h.until(status="SUCCESS")
        assert h.now == 106


@virtual_time
async def test_a_run_in_step_mode_moves_when_it_is_stepped() -> None:
    plain = {"SLOW": lambda msg: msg}
    async with WorkflowHarness(numbers(), plain, step_mode=True) as h:
        await h.settle()
        assert h.results("out") == []

        for done in (1, 2):
            h.step()
            await h.settle()
            assert len(h.results("out")) == done
        h.step(2)
        await h.until(status="SUCCESS")


@virtual_time
async def test_a_node_is_stepped_paused_and_resumed_alone() -> None:
    async with WorkflowHarness(numbers(), {"SLOW": lambda msg: msg}) as h:
        node = h.node("out")
        node.pause()
        await h.settle()
        assert (h.node("slow").outputs.payloads, h.results("out")) == (
            [{"n": n} for n in range(3)],
            [],
        )

        node.step(2)
        await h.settle()
        assert len(h.results("out")) == 2
        assert node.resume() is True
        await h.until(status="SUCCESS")
        assert node.resume() is False


@virtual_time
async def test_a_run_is_stopped_in_two_ways() -> None:
    async with harness(numbers(count=0, every_ms=1000)) as h:
        await h.until(lambda h: len(h.results("out")) == 2)
        assert h.stop() is True
        await h.until(status="STOPPED")
        assert h.stop() is False

    async with harness(numbers(count=0, every_ms=1000)) as h:
        await h.until(node="slow", status="RUNNING")
        h.stop(StopMode.CANCEL)
        await h.until(status="CANCELLED")


@virtual_time
async def test_a_node_is_stopped_alone_and_its_children_see_an_end() -> None:
    async with harness(numbers(count=0, every_ms=1000)) as h:
        await h.until(lambda h: len(h.results("out")) == 2)
        assert h.node("numbers").stop() is True
        await h.until(status="SUCCESS")

        assert h.node("numbers").status is TaskStatus.STOPPED
        assert h.node("numbers").stop() is False


# -- marbles


@virtual_time
async def test_each_node_is_drawn_with_what_it_emitted_and_when() -> None:
    async with harness(lookup=LOOKUP) as h:
        await h.until(status="SUCCESS")

        assert h.node("numbers").marble == "(abc|)"
        assert h.node("slow").marble == "--a-b-(c|)"
        assert h.node("out").marble == "--a-b-(c|)"


@virtual_time
async def test_a_failure_and_an_end_that_is_not_there_yet_are_drawn() -> None:
    async with harness(numbers(count=2, start=12)) as h:
        await h.advance(3.5)
        assert h.node("slow").marble == "--a"
        await h.until(status="FAILURE")

        assert h.node("slow").marble == "--a-#"
        assert h.node("slow").marble == "--a-X"
        assert h.node("out").marble == "--a-#"


@virtual_time
async def test_a_cancelled_node_is_drawn_too() -> None:
    async with harness(numbers(count=0, every_ms=1000)) as h:
        await h.advance(3)
        h.stop(StopMode.CANCEL)
        await h.until(status="CANCELLED")

        assert h.node("slow").marble == "--a!"


@virtual_time
async def test_the_timespan_is_that_of_the_harness() -> None:
    async with harness(timespan=0.5) as h:
        await h.until(status="SUCCESS")

        assert h.node("slow").marble == "----a---b---(c|)"


def test_time_is_counted_from_the_start_of_the_run() -> None:
    async def main() -> str:
        await asyncio.sleep(1000)
        async with harness() as h:
            await h.until(status="SUCCESS")
            assert h.results("out")[0].time == 2
            return str(h.node("slow").marble)

    assert run_virtual(main()) == "--a-b-(c|)"


# -- runs below the run


@virtual_time
async def test_a_node_may_run_the_workflows_that_are_given() -> None:
    definition = numbers()
    below = {**numbers(count=2), "workflowId": "below"}
    definition["nodes"][1] |= {"type": "SUB_WORKFLOW", "config": {"workflowId": "below"}}

    async with WorkflowHarness(definition, {"SLOW": slow}, workflows=[below]) as h:
        await h.until(status="RUNNING")
        await h.until(node="slow", status="SUCCESS")

        assert h.now == 12
        assert [len(output.payload["results"]) for output in h.node("slow").outputs] == [2, 2, 2]
        ended = [event for event in h.events if event.type == "execution.finished"]
        assert {event.workflow_id for event in ended} >= {"below"}
        # What is asked of a node by name is asked of the run itself.
        with pytest.raises(AssertionError, match="cannot come any more"):
            await h.until(event="node.log", node="slow")
