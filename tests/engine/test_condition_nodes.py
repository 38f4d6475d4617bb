"""FILTER, SWITCH, FAULT_INJECTOR and INTERVAL_TRIGGER in whole runs."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.errors import DefinitionError
from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.clock import virtual_time

ALLOWED = load_settings(environ={}, overrides={"yukta.plugins.allow-fault-injection": True})
NARROW = load_settings(environ={}, overrides={"yukta.execution.prefetch": 1})
TEN = ("SEQUENCE_TRIGGER", {"count": 10})


def refusals(world, nodes, edges, **options):
    """(node, option, code, detail) of every fault."""
    with pytest.raises(DefinitionError) as refused:
        world.run(nodes, edges, **options)
    return [(f.node_id, f.option, f.code, f.detail) for f in refused.value.errors]


# --- FILTER --------------------------------------------------------------------------------------


@pytest.mark.feature("ENG-02")
@virtual_time
async def test_what_a_filter_holds_back_is_filtered_and_not_lost(world):
    nodes = {
        "in": TEN,
        "even": ("FILTER", {"when": "payload.n % 2 == 0 and payload.n != 4"}),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > even > out")

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [payload["n"] for payload in world.payloads()] == [0, 2, 6, 8]
    assert outcome.totals == {"in": 10, "out": 4, "failed": 0, "dropped": 0}
    assert outcome.nodes["even"]["dropped"] == 0
    assert run.nodes["even"].stage.filtered == 6


@pytest.mark.feature("ENG-02")
@virtual_time
async def test_a_message_that_a_condition_does_not_fit_fails_the_node_with_the_reason(world):
    nodes = {
        "in": TEN,
        "f": ("FILTER", {"when": "payload.m > 3"}),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > f > out")

    outcome = await run.execute()

    error = outcome.nodes["f"]["error"]
    assert outcome.status is TaskStatus.FAILURE
    assert error["exception"] == "BadInputError"
    assert "condition `payload.m > 3` in `payload.m`: there is no member `m`" in error["detail"]


@pytest.mark.feature("DEF-02")
def test_a_malformed_condition_is_refused_with_the_definition(world):
    nodes = {"in": TEN, "f": ("FILTER", {"when": "payload.n = 3"}), "out": "COLLECT_TERMINAL"}

    (found,) = refusals(world, nodes, "in > f > out")

    assert found[:3] == ("f", "when", "invalid_expression")
    assert "column 11" in found[3]


# --- SWITCH --------------------------------------------------------------------------------------

SWITCH = {
    "cases": [
        {"port": "low", "when": "payload.n < 3"},
        {"port": "high", "when": "payload.n > 7"},
    ]
}


@pytest.mark.feature("ENG-02")
@virtual_time
async def test_a_switch_sends_each_message_one_way(world):
    nodes = {
        "in": TEN,
        "sw": ("SWITCH", {**SWITCH, "otherwise": "rest"}),
        "a": "COLLECT_TERMINAL",
        "b": "COLLECT_TERMINAL",
        "c": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > sw, sw.low > a, sw.high > b, sw.rest > c")

    outcome = await run.execute()

    ways = {name: [payload["n"] for payload in world.payloads(name)] for name in "abc"}
    assert ways == {"a": [0, 1, 2], "b": [8, 9], "c": [3, 4, 5, 6, 7]}
    assert outcome.totals == {"in": 10, "out": 10, "failed": 0, "dropped": 0}


@pytest.mark.feature("ENG-02")
@virtual_time
async def test_what_no_case_is_for_is_filtered_and_counted(world):
    nodes = {"in": TEN, "sw": ("SWITCH", SWITCH), "a": "COLLECT_TERMINAL", "b": "NULL_TERMINAL"}
    run = world.run(nodes, "in > sw, sw.low > a, sw.high > b")

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert run.nodes["sw"].counts == {"unmatched": 5}
    assert outcome.totals["dropped"] == 0


@pytest.mark.feature("DEF-02")
def test_an_edge_from_a_port_that_no_case_names_is_refused_with_those_there_are(world):
    nodes = {"in": TEN, "sw": ("SWITCH", SWITCH), "a": "COLLECT_TERMINAL"}

    (found,) = refusals(world, nodes, "in > sw, sw.hihg > a")

    assert found[1:3] == ("sourcePort", "unknown_port")
    assert "SWITCH has no port `hihg`; did you mean `high`?" in found[3]


@pytest.mark.feature("DEF-02")
def test_edges_are_not_blamed_for_a_switch_that_is_malformed(world):
    broken = {"cases": [{"port": "low", "when": "payload.n <"}]}
    nodes = {"in": TEN, "sw": ("SWITCH", broken), "a": "COLLECT_TERMINAL"}

    (found,) = refusals(world, nodes, "in > sw, sw.low > a")

    assert found[:3] == ("sw", "cases.0.when", "invalid_expression")


# --- FAULT_INJECTOR ------------------------------------------------------------------------------


@pytest.mark.feature("ENG-03")
@pytest.mark.parametrize("config", [{}, {"failTimes": "${payload.n:int}"}])
def test_faults_are_refused_unless_the_setting_allows_them(world, config):
    nodes = {"in": TEN, "bad": ("FAULT_INJECTOR", config), "out": "COLLECT_TERMINAL"}

    (found,) = refusals(world, nodes, "in > bad > out")

    assert found[0] == "bad"
    assert found[2] == "not_allowed"
    assert "yukta.plugins.allow-fault-injection = true allows it" in found[3]


@pytest.mark.feature("ENG-03")
@virtual_time
async def test_copies_leave_before_the_failure(world):
    config = {"failWhen": "payload.n == 3", "emitBeforeFailing": 2, "error": "LookupError"}
    nodes = {"in": TEN, "bad": ("FAULT_INJECTOR", config), "out": "COLLECT_TERMINAL"}
    run = world.run(nodes, "in > bad > out", settings=ALLOWED)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.nodes["bad"]["error"]["exception"] == "LookupError"
    assert outcome.nodes["bad"]["out"] == 3 + 2


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_long_delay_does_not_look_idle_and_stands_still_in_a_pause(world):
    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 1}),
        "slow": ("FAULT_INJECTOR", {"delayMs": 120_000}),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > slow > out", settings=ALLOWED)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(60)

    run.pause("slow")
    await asyncio.sleep(600)
    run.resume("slow")
    outcome = await task

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(720, abs=1)


# --- INTERVAL_TRIGGER ----------------------------------------------------------------------------


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_ticks_come_at_their_pace_with_the_time_of_day(world):
    nodes = {"in": ("INTERVAL_TRIGGER", {"everyMs": 1000, "count": 3}), "out": "COLLECT_TERMINAL"}
    run = world.run(nodes, "in > out")

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(2, abs=0.01)
    assert world.payloads() == [
        {"tick": 0, "time": "2026-01-01T00:00:00.000Z"},
        {"tick": 1, "time": "2026-01-01T00:00:01.000Z"},
        {"tick": 2, "time": "2026-01-01T00:00:02.000Z"},
    ]


@pytest.mark.feature("ENG-01")
@virtual_time
async def test_a_slow_consumer_makes_ticks_be_skipped_and_never_pile_up(world):
    nodes = {
        "in": ("INTERVAL_TRIGGER", {"everyMs": 100, "count": 20}),
        "slow": ("DELAY", {"ms": 1000}),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > slow > out", settings=NARROW)

    outcome = await run.execute()

    ticks = [payload["tick"] for payload in world.payloads()]
    assert outcome.status is TaskStatus.SUCCESS
    assert len(ticks) == 20
    assert run.nodes["in"].counts["skipped"] == ticks[-1] + 1 - 20
    assert ticks[-1] > 150, "the consumer's pace, not that of a queue"
    assert outcome.totals["dropped"] == 0


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_paused_trigger_misses_no_tick(world):
    nodes = {"in": ("INTERVAL_TRIGGER", {"everyMs": 100, "count": 5}), "out": "COLLECT_TERMINAL"}
    run = world.run(nodes, "in > out")
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.25)

    run.pause("in")
    await asyncio.sleep(600)
    run.resume("in")
    await task

    assert [payload["tick"] for payload in world.payloads()] == [0, 1, 2, 3, 4]
    assert run.nodes["in"].counts == {}
