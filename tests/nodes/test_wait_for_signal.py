"""WAIT_FOR_SIGNAL: messages wait for people, in a run of the engine and in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.errors import DefinitionError
from yukta_rx.nodes.wait_for_signal import wait_for_signal
from yukta_rx.plugins.contract import check_config, spec_of
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing import PluginHarness, WorkflowHarness, virtual_time

pytestmark = pytest.mark.feature("CTL-05")


def waiting(
    count: int = 1, *, engine: dict[str, Any] | None = None, every_ms: int = 0, **config: Any
) -> dict[str, Any]:
    """Numbers, each of which waits for the signal `go`."""
    config.setdefault("signal", "go")
    if engine is not None:
        config["engine"] = engine
    trigger = {"count": count, "intervalMs": every_ms}
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": trigger},
            {"nodeId": "ask", "type": "WAIT_FOR_SIGNAL", "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "ask"}, {"source": "ask", "target": "out"}],
    }


def numbers(h: WorkflowHarness) -> list[int]:
    return [payload["n"] for payload in h.results("out").payloads]


def headers(h: WorkflowHarness) -> list[dict[str, Any]]:
    return [dict(output.headers) for output in h.results("out")]


def said(h: WorkflowHarness, kind: str) -> list[dict[str, Any]]:
    return [event.data for event in h.events if event.type == f"approval.{kind}"]


@virtual_time
async def test_a_message_waits_until_its_signal_comes_and_is_tagged_with_it() -> None:
    async with WorkflowHarness(waiting()) as h:
        await h.until(node="ask", status="RUNNING")
        await h.advance(1000)
        assert numbers(h) == []

        assert await h.signal("ask", "go", "sure", {"by": ["Ada"]})
        await h.until(status="SUCCESS")

        assert headers(h) == [
            {"signal.name": "go", "signal.decision": "sure", "signal.data": {"by": ["Ada"]}}
        ]
        assert h.now == 1000


@virtual_time
async def test_a_signal_without_data_leaves_no_tag_for_it() -> None:
    async with WorkflowHarness(waiting()) as h:
        await h.signal("ask", "go")
        await h.until(status="SUCCESS")

        assert headers(h) == [{"signal.name": "go", "signal.decision": "approve"}]


@virtual_time
async def test_nine_kilobytes_of_data_arrive_whole() -> None:
    data = {"text": "ä" * 4500, "more": [None, True, 1.5]}
    async with WorkflowHarness(waiting()) as h:
        await h.signal("ask", "go", data=data)
        await h.until(status="SUCCESS")

        assert headers(h)[0]["signal.data"] == data


@virtual_time
async def test_a_hundred_messages_wait_at_once_and_the_node_takes_no_more() -> None:
    async with WorkflowHarness(waiting(0)) as h:
        await h.settle()
        assert len(h.approvals) == 100
        assert h.run.nodes["in"].counters["out"] <= 100 + 2 * 64
        taken = h.run.nodes["in"].counters["out"]

        await h.advance(60)
        assert h.run.nodes["in"].counters["out"] == taken

        for answered in range(1, 151):
            await h.signal("ask", "go")
            assert len(h.approvals) == 100
            assert numbers(h) == list(range(answered))


@virtual_time
async def test_fewer_wait_where_max_waiting_says_so() -> None:
    async with WorkflowHarness(waiting(10, maxWaiting=3)) as h:
        await h.settle()

        assert [one["payloadPreview"] for one in h.approvals] == [
            '{"n":0}',
            '{"n":1}',
            '{"n":2}',
        ]
        assert len(h.approvals) == 3


@virtual_time
@pytest.mark.parametrize(("most", "seen"), [(2, 2), (500, 20), (1, 1)])
async def test_the_concurrency_of_the_document_can_only_lower_that(most: int, seen: int) -> None:
    engine = {"concurrency": {"max": most}}
    async with WorkflowHarness(waiting(30, maxWaiting=20, engine=engine)) as h:
        await h.settle()

        assert len(h.approvals) == seen


@virtual_time
async def test_what_leaves_keeps_the_order_of_what_came() -> None:
    async with WorkflowHarness(waiting(3)) as h:
        await h.settle()
        by_number = {one["payloadPreview"]: one["approvalId"] for one in h.approvals}
        for number in (2, 1):
            await h.answer(by_number[f'{{"n":{number}}}'])
        assert numbers(h) == []

        await h.answer(by_number['{"n":0}'])
        assert numbers(h) == [0, 1, 2]


@virtual_time
async def test_unless_the_document_says_that_order_does_not_matter() -> None:
    engine = {"concurrency": {"ordered": False}}
    async with WorkflowHarness(waiting(3, engine=engine)) as h:
        await h.settle()
        ids = [one["approvalId"] for one in h.approvals]

        for number in (2, 0, 1):
            await h.answer(ids[number])

        assert numbers(h) == [2, 0, 1]


@virtual_time
async def test_a_signal_goes_to_the_message_that_has_waited_longest_for_that_name() -> None:
    document = waiting(4, signal="ask-${payload.n}", every_ms=10)
    document["nodes"][1]["config"]["engine"] = {"concurrency": {"ordered": False}}
    async with WorkflowHarness(document) as h:
        await h.advance(1)

        assert await h.signal("ask", "ask-2")
        assert not await h.signal("ask", "ask-7")
        assert numbers(h) == [2]


@virtual_time
async def test_an_early_signal_is_kept_for_the_message_that_asks_for_ten_minutes() -> None:
    document = waiting(3, every_ms=400_000)
    async with WorkflowHarness(document) as h:
        for decision in ("first", "second"):
            assert not await h.signal("ask", "go", decision)
        await h.advance(1)
        assert not await h.signal("ask", "go", "third")
        await h.advance(1200)

        # They come at 0, 400 and 800 s, when the third signal does not count any more.
        assert [tags["signal.decision"] for tags in headers(h)] == ["first", "second"]
        assert len(h.approvals) == 1


@virtual_time
async def test_a_node_keeps_a_hundred_early_signals_and_refuses_one_more() -> None:
    async with WorkflowHarness(waiting(1, signal="other")) as h:
        for _ in range(100):
            assert not await h.signal("ask", "go")

        with pytest.raises(Exception, match="keeps 100 signals") as caught:
            await h.signal("ask", "go")

        assert caught.value.code == "signal_buffer_full"


# --- no, and no answer ---------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("word", ["reject", "REJECT", " Reject "])
async def test_a_no_fails_the_message_in_any_case(word: str) -> None:
    async with WorkflowHarness(waiting()) as h:
        await h.signal("ask", "go", word, by="ada")
        await h.until(status="FAILURE")

        assert h.error is not None
        assert h.error["code"] == "signal_rejected"
        assert h.error["detail"].startswith("ada answered")


@virtual_time
async def test_a_no_drops_the_message_or_lets_it_go_on_with_the_answer() -> None:
    for on_reject, expected in (("DROP", []), ("CONTINUE", ["reject"])):
        async with WorkflowHarness(waiting(onReject=on_reject)) as h:
            await h.signal("ask", "go", "reject")
            await h.until(status="SUCCESS")

            assert [tags["signal.decision"] for tags in headers(h)] == expected


@virtual_time
@pytest.mark.parametrize(
    ("on_timeout", "status", "decisions"),
    [("FAIL", "FAILURE", []), ("DROP", "SUCCESS", []), ("CONTINUE", "SUCCESS", ["timeout"])],
)
async def test_the_time_is_up_after_an_hour_unless_said_otherwise(
    on_timeout: str, status: str, decisions: list[str]
) -> None:
    async with WorkflowHarness(waiting(onTimeout=on_timeout)) as h:
        await h.until(status=status, within=4000)

        assert h.now == 3600
        assert [tags["signal.decision"] for tags in headers(h)] == decisions
        assert len(said(h, "expired")) == 1


@virtual_time
async def test_a_message_of_many_fails_by_the_policy_of_its_node() -> None:
    engine = {"onError": "CONTINUE"}
    async with WorkflowHarness(waiting(4, engine=engine, timeoutSeconds=50)) as h:
        await h.settle()
        await h.signal("ask", "go", "reject")
        await h.signal("ask", "go", "yes")
        await h.until(status="SUCCESS")

        assert numbers(h) == [1]
        failed = [event.data for event in h.events if event.type == "node.message_failed"]
        assert [one["error"]["code"] for one in failed] == [
            "signal_rejected",
            "signal_timeout",
            "signal_timeout",
        ]


@virtual_time
async def test_after_a_timeout_another_attempt_asks_again_and_after_a_no_none_does() -> None:
    engine = {"retry": {"maxAttempts": 3, "backoffMs": 0}, "onError": "CONTINUE"}
    async with WorkflowHarness(waiting(2, engine=engine, timeoutSeconds=10)) as h:
        await h.settle()
        await h.signal("ask", "go", "reject")
        await h.advance(11)
        await h.signal("ask", "go", "late but yes")
        await h.until(status="SUCCESS")

        assert [tags["signal.decision"] for tags in headers(h)] == ["late but yes"]
        assert [len(said(h, kind)) for kind in ("requested", "answered", "expired")] == [3, 2, 1]


# --- time ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_pause_stops_the_time_of_a_wait() -> None:
    async with WorkflowHarness(waiting(timeoutSeconds=100, onTimeout="CONTINUE")) as h:
        await h.advance(60)
        assert h.approvals[0]["expiresAt"] == "2026-01-01T00:01:40.000Z"
        h.pause()
        assert "expiresAt" not in h.approvals[0]
        await h.advance(10_000)
        assert len(h.approvals) == 1

        h.resume()
        await h.until(status="SUCCESS")

        assert h.now == 10_100


@virtual_time
async def test_an_answer_during_a_pause_is_taken_at_once() -> None:
    async with WorkflowHarness(waiting(2)) as h:
        await h.settle()
        h.node("ask").pause()

        await h.signal("ask", "go")

        assert numbers(h) == [0]


@virtual_time
async def test_the_idle_clock_does_not_run_while_messages_wait() -> None:
    document = waiting(2, timeoutSeconds=5000, onTimeout="CONTINUE")
    document["nodes"][1]["timeoutSeconds"] = 2
    async with WorkflowHarness(document) as h:
        await h.until(status="SUCCESS", within=6000)

        assert h.now == 5000


def test_the_idle_timeout_lies_above_the_wait() -> None:
    spec = spec_of(wait_for_signal)

    assert spec.timeout(spec.config(signal="go", timeout_seconds=100)) == 130


# --- the end of a wait ---------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("mode", [StopMode.CANCEL, StopMode.KILL])
async def test_a_run_that_is_stopped_asks_nothing_any_more(mode: StopMode) -> None:
    store = MemoryInputRequestStore()
    async with WorkflowHarness(waiting(5), answers=store) as h:
        await h.settle()
        ids = [one["approvalId"] for one in h.approvals]

        h.stop(mode)
        await h.until(status="CANCELLED")

        assert h.approvals == []
        found = [await store.get(one) for one in ids]
        assert {one.state for one in found if one is not None} == {"CANCELLED"}
        assert len(found) == 5


@virtual_time
async def test_a_node_that_fails_asks_nothing_any_more() -> None:
    async with WorkflowHarness(waiting(5)) as h:
        await h.settle()
        await h.signal("ask", "go", "reject")
        await h.until(node="ask", status="FAILURE")

        assert h.approvals == []


@virtual_time
async def test_a_drain_waits_for_the_answers() -> None:
    async with WorkflowHarness(waiting(0, maxWaiting=2)) as h:
        await h.settle()
        taken = h.run.nodes["in"].counters["out"]
        h.stop()
        for _ in range(taken):
            await h.signal("ask", "go")

        await h.until(status="STOPPED")
        assert len(numbers(h)) == taken


@virtual_time
async def test_events_tell_what_is_asked_and_what_became_of_it() -> None:
    document = waiting(2, prompt="Is ${payload.n} fine?", timeoutSeconds=9, onTimeout="DROP")
    async with WorkflowHarness(document) as h:
        await h.settle()
        asked = said(h, "requested")
        await h.signal("ask", "go", "fine", {"x": 1}, by="ada")
        await h.until(status="SUCCESS")

        assert asked[1] == {
            "approvalId": asked[1]["approvalId"],
            "executionId": "harness",
            "sessionId": "local",
            "workflowId": "w",
            "nodeId": "ask",
            "messageId": asked[1]["messageId"],
            "signal": "go",
            "since": "2026-01-01T00:00:00.000Z",
            "expiresAt": "2026-01-01T00:00:09.000Z",
            "prompt": "Is 1 fine?",
            "payloadPreview": '{"n":1}',
        }
        assert said(h, "answered") == [{**asked[0], "decision": "fine", "answeredBy": "ada"}]
        assert [one["approvalId"] for one in said(h, "expired")] == [asked[1]["approvalId"]]


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("signal", "two words"),
        ("signal", "x\nevent: spoof"),
        ("signal", ""),
        ("timeoutSeconds", 0),
        ("timeoutSeconds", "5"),
        ("timeoutSeconds", True),
        ("onTimeout", "IGNORE"),
        ("onReject", "reject"),
        ("maxWaiting", 0),
        ("maxWaiting", 1001),
        ("maxWaiting", "${payload.n:int}"),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    [fault] = check_config(spec_of(wait_for_signal), {"signal": "go", option: value})

    assert fault.option == option


@virtual_time
async def test_a_name_from_a_message_that_cannot_be_one_is_bad_input() -> None:
    async with WorkflowHarness(waiting(signal="${payload.n} or so")) as h:
        await h.until(status="FAILURE")

        assert h.error is not None
        assert h.error["code"] == "bad_input"


def test_concurrency_is_not_for_stream_plugins_still() -> None:
    document = waiting()
    document["nodes"][1] |= {
        "type": "BATCH",
        "config": {"size": 2, "engine": {"concurrency": {"max": 2}}},
    }

    with pytest.raises(DefinitionError, match="several messages at once"):
        WorkflowHarness(document)


def test_a_plugin_harness_can_send_a_signal_before_the_message() -> None:
    with PluginHarness(wait_for_signal, {"signal": "go", "onReject": "CONTINUE"}) as h:
        h.signal("go", "reject", {"why": "no"})
        h.signal("go")

        sent = h.send({"n": 1}, {"n": 2})

        assert [dict(output.headers) for output in sent] == [
            {"signal.name": "go", "signal.decision": "reject", "signal.data": {"why": "no"}},
            {"signal.name": "go", "signal.decision": "approve"},
        ]
