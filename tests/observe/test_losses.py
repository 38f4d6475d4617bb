"""The loss ledger: what is counted, where, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.observe.losses import SAMPLE, Ledger
from yukta_rx.streams.circuit import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-01")


def rows(scene: Any, run: str = "r1") -> dict[tuple[str, str | None, str], int]:
    """How much a run lost, by place, node and reason."""
    shown = scene.tracker.losses.of(run)
    assert shown["lossless"] is not bool(shown["items"])
    return {
        (item["place"], item.get("nodeId"), item["reason"]): item["count"]
        for item in shown["items"]
    }


def test_a_ledger_counts_all_and_names_the_first_few() -> None:
    ledger = Ledger()
    for n in range(30):
        ledger.add("edge", "DROP_OLDEST", 2, "a", [f"m{2 * n}", f"m{2 * n + 1}"])
    ledger.add("edge", "DROP_NEWEST", 0, "a")

    (row,) = ledger.items()

    assert (row["count"], row["sample"]) == (60, [f"m{n}" for n in range(SAMPLE)])


def test_a_ledger_of_a_million_losses_has_a_row_per_node_and_reason() -> None:
    ledger = Ledger()
    for n in range(100_000):
        ledger.add("edge", "DROP_OLDEST", 10, f"n{n % 3}", [f"m{n}"])

    items = list(ledger.items())

    assert [item["nodeId"] for item in items] == ["n0", "n1", "n2"]
    assert sum(item["count"] for item in items) == 1_000_000


@virtual_time
async def test_what_buffers_and_operators_drop_is_taken_from_the_events(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        for sample in (["m1", "m2"], ["m3"]):
            count = len(sample)
            scene.emit("edge.dropped", "a", count=count, sample=sample, overflow="DROP_OLDEST")
        scene.emit("edge.dropped", "a", count=1, sample=["m9"], overflow="DROP_HELD")

        items = scene.tracker.losses.of("r1")["items"]
        assert [(item["reason"], item["count"], item["sample"]) for item in items] == [
            ("DROP_HELD", 1, ["m9"]),
            ("DROP_OLDEST", 3, ["m1", "m2", "m3"]),
        ]
        assert scene.count("yukta.edge.dropped", type="DROP_OLDEST") == 3


@virtual_time
async def test_events_and_results_that_come_after_the_end_are_losses_too(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        scene.start()
        channel.publish(scene.end(1))
        scene.finish()
        assert scene.tracker.state("r1").ended
        channel.publish(scene.result(2))
        scene.emit("node.status", "a", status="RUNNING", previous="PENDING")
        scene.line("too late", node="a")

        assert rows(scene) == {
            ("events", "a", "late"): 1,
            ("log", "a", "late"): 1,
            ("results", None, "late"): 1,
        }
        for type in ("state", "log", "result"):
            assert scene.count("yukta.tracker.dropped", type=type, kind="late") == 1


@virtual_time
async def test_lines_for_which_there_was_no_room_are_counted_by_node(
    new_scene, monkeypatch
) -> None:
    async with new_scene() as scene:
        scene.tracker._lines.limit = 4
        scene.start()
        assert scene.tracker.state("r1")
        for n in range(10):
            scene.line(f"line {n}", node="a")
        live = rows(scene)
        scene.finish()

        assert live[("log", "a", "overflow")] == 6
        assert rows(scene) == live


@virtual_time
async def test_lines_that_threads_could_not_hand_over_are_counted_at_the_end(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        totals = {"in": 0, "out": 0, "failed": 0, "dropped": 0}
        scene.emit("execution.finished", status="SUCCESS", totals=totals, droppedLines=7)

        assert rows(scene) == {("log", None, "overflow"): 7}


@virtual_time
async def test_results_and_lines_that_retention_took_are_counted(new_scene) -> None:
    async with new_scene(results__retained_events=3, logs__store__max_lines=4) as scene:
        channel = scene.results.channel("r1", "s")
        scene.start()
        assert scene.tracker.state("r1")
        for cursor in range(1, 11):
            channel.publish(scene.result(cursor))
            scene.line(f"line {cursor}")
        assert scene.tracker.state("r1")
        kept = len(scene.logs.channel("r1", "s").read(limit=100).items)

        assert rows(scene) == {
            ("results", None, "retention"): 7,
            ("log", None, "retention"): 10 - kept,
        }


@virtual_time
async def test_results_that_went_before_their_run_are_expired(new_scene) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        scene.start()
        for cursor in range(1, 4):
            channel.publish(scene.result(cursor))
        channel.publish(scene.end(4))
        scene.finish()
        before = rows(scene)
        scene.results.forget("r1")

        assert before == {}
        assert rows(scene) == {("results", None, "expired"): 4}


@virtual_time
async def test_ends_of_nodes_that_the_execution_log_left_out_are_counted(new_scene) -> None:
    async with new_scene() as scene:
        scene.start()
        assert scene.tracker.state("r1")
        scene.tracker.losses.left_out("r1", "a")
        scene.tracker.losses.left_out("gone", "a")

        assert rows(scene) == {("history", "a", "overflow"): 1}


@virtual_time
async def test_a_ledger_goes_with_its_run(new_scene) -> None:
    async with new_scene(tracker__max_executions=1) as scene:
        for run in ("r1", "r2", "r3"):
            scene.start(run)
            scene.emit("edge.dropped", "a", run, count=1, sample=["m"], overflow="DROP_OLDEST")
            scene.finish(run)

        found = [bool(rows(scene, run)) for run in ("r1", "r2", "r3")]
        assert found == [scene.tracker.state(run) is not None for run in ("r1", "r2", "r3")]
        assert found.count(True) < 3


@virtual_time
async def test_samples_that_nobody_takes_are_no_losses(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(
            {"t": ("SEQUENCE_TRIGGER", {"count": 500}), "p": "PASS", "c": "NULL_TERMINAL"},
            "t > p > c",
        )
        with scene.feed.subscribe():
            await run.execute()

        assert rows(scene, run.execution_id) == {}


@virtual_time
async def test_what_waited_for_a_node_that_was_cut_off_is_discarded(new_scene) -> None:
    async with new_scene() as scene:
        run = scene.run(
            {"t": ("SEQUENCE_TRIGGER", {"count": 20}), "p": "PASS", "c": "NULL_TERMINAL"},
            "t > p > c",
        )
        run.pause("c")
        scene.clock.call_at(scene.clock.now() + 1, lambda: run.stop(StopMode.KILL))
        outcome = await run.execute()

        found = rows(scene, run.execution_id)
        assert {reason for _, _, reason in found} == {"DISCARDED"}
        assert sum(found.values()) == outcome.totals["dropped"] > 0
        assert scene.count("yukta.edge.dropped", type="DISCARDED") == sum(found.values())
        for item in scene.tracker.losses.of(run.execution_id)["items"]:
            # Those in its hand, and those that waited; ten are named.
            assert len(set(item["sample"])) == min(item["count"], 10)


@virtual_time
async def test_what_no_edge_was_there_for_is_named(new_scene) -> None:
    switch = {"cases": [{"port": "even", "when": "payload.n % 2 == 0"}], "otherwise": "odd"}
    async with new_scene() as scene:
        run = scene.run(
            {
                "t": ("SEQUENCE_TRIGGER", {"count": 100}),
                "s": ("SWITCH", switch),
                "c": "NULL_TERMINAL",
            },
            "t > s.even > c",
        )
        await run.execute()

        [item] = scene.tracker.losses.of(run.execution_id)["items"]
        assert (item["nodeId"], item["reason"], item["count"]) == ("s", "UNROUTED", 50)
        assert len(set(item["sample"])) == 10
