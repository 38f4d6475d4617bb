"""Join rules: what a node makes of parents that fail."""

import asyncio

import pytest

from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-03")

SEQUENCE = ("SEQUENCE_TRIGGER", {"count": 100})


def passes(**engine):
    """A node that passes messages on under an engine policy."""
    return ("PASS", {"engine": engine})


def n_of_m(n):
    """The rule that asks for `n` parents."""
    return {"rule": "N_OF_M", "n": n}


@virtual_time
async def test_case_03_a_branch_that_fails_before_the_node_next_to_the_join_ends_the_wait(world):
    run = world.run(
        {
            "a": SEQUENCE,
            "b": "BOOM",
            "c": "PASS",
            "d": "PASS",
            "j": passes(trigger="ALL_DONE"),
            "out": "COLLECT_TERMINAL",
        },
        "a > b > c > j, a > d > j > out",
    )

    outcome = await run.execute()

    assert outcome.nodes["b"]["status"] == "FAILURE"
    assert outcome.nodes["c"]["status"] == "UPSTREAM_FAILED"
    assert outcome.nodes["j"]["status"] == "SUCCESS"
    assert [payload["n"] for payload in world.payloads()] == list(range(100))
    assert outcome.status is TaskStatus.SUCCESS, "every path ends in a join that carried on"
    assert outcome.nodes["b"]["error"]["exception"] == "LookupError"


@pytest.mark.parametrize("rule", ["ONE_SUCCESS", n_of_m(1)], ids=["one", "1 of 2"])
@virtual_time
async def test_case_54_no_success_among_those_that_are_needed_fails_node_and_run(world, rule):
    run = world.run(
        {
            "a": SEQUENCE,
            "b": "BOOM",
            "c": "BOOM",
            "j": passes(trigger=rule),
            "out": "COLLECT_TERMINAL",
        },
        "a > b > j, a > c > j > out",
    )

    outcome = await run.execute()

    assert outcome.nodes["j"]["status"] == "UPSTREAM_FAILED"
    assert outcome.status is TaskStatus.FAILURE


@pytest.mark.parametrize(
    ("needed", "failing", "status"),
    [
        (1, 2, "SUCCESS"),
        (2, 1, "SUCCESS"),
        (2, 2, "UPSTREAM_FAILED"),
        (3, 0, "SUCCESS"),
        (3, 1, "UPSTREAM_FAILED"),
    ],
)
@virtual_time
async def test_n_of_m_carries_on_while_n_parents_can_succeed(world, needed, failing, status):
    kinds = ["BOOM" if i < failing else "PASS" for i in range(3)]
    run = world.run(
        {"a": SEQUENCE}
        | {f"p{i}": kind for i, kind in enumerate(kinds)}
        | {"j": passes(trigger=n_of_m(needed)), "out": "COLLECT_TERMINAL"},
        "a > p0 > j, a > p1 > j, a > p2 > j > out",
    )

    outcome = await run.execute()

    assert outcome.nodes["j"]["status"] == status
    if status == "SUCCESS":
        assert len(world.payloads()) == 100 * (3 - failing)


@virtual_time
async def test_a_parent_that_is_not_required_may_fail(world):
    run = world.run(
        {"a": SEQUENCE, "b": "BOOM", "c": "PASS", "j": "PASS", "out": "COLLECT_TERMINAL"},
        "a > b >? j, a > c > j > out",
    )

    outcome = await run.execute()

    assert outcome.nodes["b"]["status"] == "FAILURE"
    assert outcome.nodes["j"]["status"] == "SUCCESS"
    assert outcome.status is TaskStatus.SUCCESS
    assert len(world.payloads()) == 100


@virtual_time
async def test_a_failed_trigger_leaves_the_run_a_success_where_the_join_carries_on(world):
    @trigger("BROKEN", blocking=False)
    def broken(cfg, ctx):
        raise ConnectionError("nobody there")

    run = world.run(
        {
            "bad": "BROKEN",
            "good": SEQUENCE,
            "j": passes(trigger="ONE_SUCCESS"),
            "out": "COLLECT_TERMINAL",
        },
        "bad > j, good > j > out",
        broken,
    )

    outcome = await run.execute()

    assert outcome.nodes["bad"]["status"] == "FAILURE"
    assert outcome.status is TaskStatus.SUCCESS
    assert len(world.payloads()) == 100


@virtual_time
async def test_what_a_failed_parent_emitted_before_is_not_lost(world):
    @processor("TEN", blocking=False)
    def ten(msg, cfg, ctx):
        if msg.payload["n"] == 10:
            raise RuntimeError("enough")
        return msg

    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        await asyncio.sleep(0.01)
        return msg

    run = world.run(
        {
            "a": SEQUENCE,
            "b": "TEN",
            "c": "PASS",
            "j": ("SLOW", {"engine": {"trigger": "ALL_DONE"}}),
            "out": "COLLECT_TERMINAL",
        },
        "a > b > j, a > c > j > out",
        ten,
        slow,
    )

    outcome = await run.execute()

    assert outcome.nodes["j"]["in"] == 110
    assert outcome.totals["dropped"] == outcome.nodes["b"]["dropped"], (
        "only in front of the failure"
    )
