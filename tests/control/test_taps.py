"""Taps of edges: what they show, that they cost the run nothing, and how many there may be."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.control.lines import line, live_run, told
from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.taps import MOST
from yukta_rx.errors import BadRequestError, ConflictError, NotFoundError, TooManyStreamsError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-01")


def tap(engine: Engine, run: Any, source: str = "in", target: str = "mid", **options: Any) -> Any:
    """A tap of an edge."""
    wanted = {"port": None, "max_per_sec": 5, "max_bytes": 16_384, **options}
    return engine.gateway.tap(run.execution_id, source=source, target=target, **wanted)


async def read(reader: Any, seconds: float) -> list[dict[str, Any]]:
    """What a tap shows within some seconds."""
    found: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(seconds):
            while items := await reader.take():
                found += items
    except TimeoutError:
        pass
    return found


async def long_open(cfg, ctx):
    """Take a minute."""
    await asyncio.sleep(60)


@processor("LATE", blocking=False, open=long_open)
def late(msg, cfg, ctx):
    """Send on what came."""
    return msg


@virtual_time
async def test_while_plugins_are_opened_that_is_said_and_a_tap_waits_for_it():
    registry = PluginRegistry.load(Settings(), extra=[late])
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", line("LATE", every_ms=1_000))
        await asyncio.sleep(1)
        node = engine.gateway.why(run.execution_id, "in")
        whole = engine.gateway.why(run.execution_id)
        with tap(engine, run, "mid", "out") as reader:
            early = await read(reader, 50)
            later = await read(reader, 15)
        await run.stop(StopMode.KILL)

    assert told(node) == [("OPENING", "in")]
    assert told(whole) == [("RUNNING", None), ("OPENING", None)]
    assert early == []
    assert later


@virtual_time
async def test_a_slow_edge_is_seen_whole_and_the_end_is_told():
    async with live_run(line("TELLS", count=3, every_ms=1_000), seconds=0.1) as (engine, run):
        with tap(engine, run) as reader:
            items = await read(reader, 100)
        closed = reader.closed

    assert [item["type"] for item in items] == ["tap.message", "tap.message", "tap.end"]
    assert [item["payload"]["n"] for item in items[:2]] == [1, 2]
    assert items[0]["headers"] == {}
    assert [item["skipped"] for item in items] == [0, 0, 0]
    assert items[0]["truncated"] is False
    assert closed


@virtual_time
async def test_a_fast_edge_is_sampled_and_says_how_many_passed_unseen():
    document = line("BROKEN", every_ms=10)
    document["nodes"][1]["type"] = "TELLS"
    async with live_run(document) as (engine, run):
        with tap(engine, run, max_per_sec=2) as reader:
            items = await read(reader, 10.001)

    assert len(items) == pytest.approx(20, abs=2)
    numbers = [item["payload"]["n"] for item in items]
    gaps = [after - before - 1 for before, after in pairwise(numbers)]
    assert gaps == [item["skipped"] for item in items[1:]]
    assert max(gaps) > 40


@virtual_time
async def test_what_is_too_long_is_cut_and_secrets_are_masked_before():
    async with live_run(line("TELLS", every_ms=100)) as (engine, run):
        engine.masker.add("open-sesame")
        with tap(engine, run, "mid", "out") as whole, tap(engine, run, "mid", "out") as other:
            seen = (await read(whole, 1))[0]
            same = (await read(other, 1))[0]
        cuts = []
        for most in range(16, 120):
            with tap(engine, run, "mid", "out", max_bytes=most) as cut:
                cuts += await read(cut, 0.2)

    assert seen["payload"]["password"] == "***"
    assert same["messageId"] == seen["messageId"]
    assert seen["truncated"] is False
    for item in cuts:
        assert item["truncated"] is True
        assert item["payload"].startswith('{"n":')
        assert "open" not in item["payload"]
    assert {len(item["payload"].encode()) for item in cuts} == set(range(16, 120))


@virtual_time
async def test_a_huge_payload_is_not_written_out_to_be_cut():
    @processor("HUGE", blocking=False)
    def huge(msg, cfg, ctx):
        return {"text": "é" * 1_000_000, "after": "open-sesame"}

    registry = PluginRegistry.load(Settings(), extra=[huge])
    async with Engine(registry=registry) as engine:
        engine.masker.add("é" * 3_000)
        run = await engine.start("s", line("HUGE", every_ms=1_000))
        with tap(engine, run, "mid", "out", max_bytes=100) as reader:
            [first, *_] = await read(reader, 2)
        await run.stop(StopMode.KILL)

    assert first["truncated"] is True
    assert "é" * 1_000 not in first["payload"]


@virtual_time
async def test_a_tap_takes_nothing_from_the_run_and_leaves_nothing_behind():
    async with live_run(line("BROKEN", count=2, every_ms=1_000), seconds=0.1) as (engine, run):
        stage = engine._starter.live[run.execution_id].node("in").stage
        before = stage.tap
        first, second = tap(engine, run), tap(engine, run)
        during = stage.tap
        first.close()
        between = stage.tap
        second.close()
        second.close()

        assert between is during is not before
        assert stage.tap is before
        assert len(engine.gateway.taps) == 0
        assert await run.wait() is TaskStatus.SUCCESS


@virtual_time
async def test_the_record_of_a_node_goes_on_under_a_tap_and_after_it():
    async with live_run(line("BROKEN", count=2, every_ms=1_000), seconds=0.1) as (engine, run):
        with tap(engine, run):
            await run.wait()
        again = await run.node("mid").restart()
        await again.wait()
        items = [item.payload async for item in again.results() if item.type == "RESULT"]

    assert [payload["n"] for payload in items] == [0, 1]


class Sulks(str):
    """A name that does not say what it is."""

    __slots__ = ()

    def __str__(self):
        raise LookupError("no")


@virtual_time
async def test_a_message_that_cannot_be_shown_costs_the_tap_and_not_the_run(caplog):
    @processor("ODD", blocking=False)
    def odd(msg, cfg, ctx):
        return {Sulks("a"): object()}

    registry = PluginRegistry.load(Settings(), extra=[odd])
    async with Engine(registry=registry) as engine:
        run = await engine.start("s", line("ODD", count=3, every_ms=1_000))
        with tap(engine, run, "mid", "out") as reader:
            items = await read(reader, 10)
        status = await run.wait()

    assert status is TaskStatus.SUCCESS
    assert [item["type"] for item in items] == ["tap.end"]
    assert "the tap of an edge failed" in caplog.text


@virtual_time
async def test_a_record_that_is_full_leaves_the_stage_under_a_tap_too():
    settings = Settings(restart={"messages_per_node": 2})
    document = line("BROKEN", count=0, every_ms=10)
    document["nodes"][1]["type"] = "TELLS"
    async with live_run(document, seconds=0.5, settings=settings) as (engine, run):
        stage = engine._starter.live[run.execution_id].node("in").stage
        recording = stage.tap
        with tap(engine, run) as reader:
            items = await read(reader, 30.1)
        after = stage.tap

    assert recording is not None
    assert after is None
    assert len(items) > 140


@virtual_time
async def test_an_edge_that_there_is_not_cannot_be_tapped():
    async with live_run(line()) as (engine, run):
        with pytest.raises(NotFoundError) as error:
            tap(engine, run, "in", "out")
        with pytest.raises(NotFoundError) as port:
            tap(engine, run, port="left")
        with pytest.raises(NotFoundError) as node:
            tap(engine, run, "nowhere")

    assert [one.value.code for one in (error, port, node)] == [
        "edge_not_found",
        "edge_not_found",
        "node_not_found",
    ]


@virtual_time
async def test_where_several_ports_lead_to_a_node_one_has_to_be_named():
    document = line("SWITCH", every_ms=100)
    cases = [{"when": "payload.n % 2 == 0", "port": "even"}]
    document["nodes"][1]["config"] = {"cases": cases, "otherwise": "odd"}
    document["edges"] = [
        {"source": "in", "target": "mid"},
        {"source": "mid", "target": "out", "sourcePort": "even"},
        {"source": "mid", "target": "out", "sourcePort": "odd"},
    ]
    async with live_run(document) as (engine, run):
        with pytest.raises(BadRequestError, match="must be one of even, odd"):
            tap(engine, run, "mid", "out")
        with tap(engine, run, "mid", "out", port="odd") as reader:
            items = await read(reader, 2)

    assert items
    assert all(item["payload"]["n"] % 2 for item in items)


@virtual_time
async def test_only_so_many_taps_are_open_and_only_of_runs_that_go_on():
    async with live_run(line()) as (engine, run):
        open_ones = [tap(engine, run) for _ in range(MOST)]
        with pytest.raises(TooManyStreamsError):
            tap(engine, run)
        open_ones[0].close()
        tap(engine, run).close()
        for reader in open_ones:
            reader.close()
        await run.stop(StopMode.KILL)
        await run.wait()
        with pytest.raises(ConflictError) as error:
            tap(engine, run)

    assert error.value.code == "execution_not_running"


@virtual_time
async def test_who_does_not_read_holds_no_more_than_a_few_messages():
    async with live_run(line("TELLS", every_ms=10)) as (engine, run):
        with tap(engine, run, max_per_sec=100) as reader:
            await asyncio.sleep(60)
            items = await reader.take(10_000)
            [after] = (await read(reader, 0.1))[:1]

    assert len(items) == 100
    assert after["skipped"] > 5_000
