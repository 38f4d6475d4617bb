"""GET /metrics: the page of Prometheus, and that each meter of a feature that exists is there."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
from prometheus_client import Counter, Histogram
from prometheus_client.exposition import choose_encoder

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import StopWorkflow
from yukta_rx.http import exposition as exposition_module
from yukta_rx.http.exposition import exposition
from yukta_rx.http.server import HttpServer
from yukta_rx.metrics import MAX_SERIES, METERS, Meters

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("OBS-04")

LIBRARY = str(Path(prometheus_client.__file__).parent)

PLANNED = {
    "yukta.workers": "SCL-01",
    "yukta.worker.slots": "SCL-01",
    "yukta.leader": "SCL-02",
    "llm.tokens": "EXT-03",
    "llm.cost": "EXT-03",
    "llm.budget.exceeded": "EXT-03",
}
"""Meters whose feature does not exist yet; whoever builds it takes them off this list."""

ELSEWHERE = {
    "yukta.tracker.log.append.failed": "control/test_history.py",
    "yukta.control.unrecorded": "http/test_unrecorded.py",
    "yukta.store.quarantined": "http/test_diagnostics.py",
    "yukta.store.stale.refused": "durability/test_postgres_failures.py",
    "yukta.postgres.connections": "durability/test_postgres_failures.py",
    "yukta.postgres.connections.idle": "durability/test_postgres_failures.py",
    "yukta.postgres.connections.wanted": "durability/test_postgres_failures.py",
    "yukta.postgres.rows.waiting": "durability/test_postgres_failures.py",
}
"""Meters that only a broken store moves, or a database: where that is tested."""

ACCEPTED = [
    "",
    "text/plain; version=0.0.4",
    "text/plain; version=1.0.0; escaping=allow-utf-8",
    "application/openmetrics-text; version=1.0.0",
    "application/openmetrics-text; version=1.0.0; escaping=dots",
    "application/openmetrics-text; version=1.0.0; escaping=values",
]


@pytest.fixture
def meters() -> Meters:
    """Some of every kind, with label values that have to be escaped, and a stranger's."""
    made = Meters()
    for number in range(50):
        made.timer("yukta.node.duration", module=f"M{number}").observe(number / 7)
        made.counter("yukta.plugin.events", plugin='a"b\\c\nd', outcome=f"ü{number}").add(number)
    made.counter("yukta.checkpoint.errors").add(1e9)
    made.watch("yukta.loop.lag", lambda: 0.001)
    Counter("own", "A counter with a time of birth.", ["x"], registry=made.registry).labels("1")
    Histogram("own_time", "A histogram of the library.", registry=made.registry).observe(1)
    return made


@pytest.mark.parametrize("accept", ACCEPTED)
async def test_the_page_is_to_the_byte_what_the_library_makes(meters: Meters, accept: str) -> None:
    encode, kind = choose_encoder(accept)

    page, shown_kind = await exposition(meters.registry, accept)

    assert page == encode(meters.registry)
    assert shown_kind == kind


@pytest.mark.parametrize("accept", ACCEPTED)
async def test_a_page_without_any_meter_is_that_of_the_library_too(accept: str) -> None:
    registry = Meters().registry

    page, _ = await exposition(registry, accept)

    assert page == choose_encoder(accept)[0](registry)


async def test_the_loop_turns_between_the_pieces_of_a_page(
    meters: Meters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition_module, "TURN", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(count())
        await exposition(meters.registry, "")
        other.cancel()

    # A hundred combinations of labels, four at a time.
    assert turns > 25


async def test_what_is_counted_while_a_page_is_made_does_not_disturb_it(
    meters: Meters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition_module, "TURN", 0.0)

    async def grow() -> None:
        for number in range(10**6):
            timer = meters.timer("yukta.node.duration", module=f"new {number}")
            timer.observe(1)
            meters.counter("yukta.edge.dropped", type=f"new {number}").add()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(grow())
        page, _ = await exposition(meters.registry, "")
        other.cancel()

    assert page.count(b"# TYPE yukta_node_duration_seconds ") == 1
    # The numbers of one combination of labels belong together.
    for line in page.decode().splitlines():
        if line.startswith("yukta_node_duration_seconds_count"):
            assert line.endswith(" 1.0")


# --- on a running server -------------------------------------------------------------------------


@contextmanager
def calls_into(folder: str) -> Iterator[list[str]]:
    """The functions of a folder that this thread calls meanwhile."""
    seen: list[str] = []

    def watch(frame: Any, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            seen.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(before)


async def test_no_object_of_prometheus_is_touched_while_runs_work(make: Any) -> None:
    async with Engine() as engine:
        run = await engine.start("s", make.chatty(count=200), {})
        with calls_into(LIBRARY) as seen:
            await run.wait(10)
            again = await engine.start("s", make.line(count=200), {})
            await again.wait(10)
            await engine.tracker.drained()

        assert seen == []
        with calls_into(LIBRARY) as seen:
            await exposition(engine.meters.registry, "")
        assert seen


def everything() -> dict[str, Any]:
    """A workflow in which a message is repeated, dropped, counted, and the loop is held up."""
    return {
        "workflowId": "everything",
        "nodes": [
            {"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": {"count": 40}},
            {
                "nodeId": "slow",
                "type": "FAULT_INJECTOR",
                "config": {
                    "delayMs": 20,
                    "blockLoop": True,
                    "failTimes": 1,
                    "engine": {
                        "retry": {"maxAttempts": 2, "backoffMs": 1},
                        "edgeBuffer": {"size": 3, "overflow": "DROP_OLDEST"},
                    },
                },
            },
            {"nodeId": "once", "type": "DEDUPLICATE", "config": {"key": "same"}},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "numbers", "target": "slow"},
            {"source": "slow", "target": "once"},
            {"source": "once", "target": "out"},
        ],
    }


async def stopper(events: Any) -> Any:
    """A supervisor that stops whatever is called `endless`."""
    async for event in events:
        if event.type == "execution.started" and event.workflow_id == "endless":
            yield StopWorkflow(execution_id=event.execution_id)


@pytest.mark.slow
async def test_every_meter_whose_feature_exists_has_a_sample(
    make: Any, connect: Any, tmp_path: Path
) -> None:
    given = {
        "profile": "file",
        "data.dir": str(tmp_path),
        "plugins.allow-fault-injection": "true",
        "watchdog.limit": "10ms",
        "execution.max-concurrent": "1",
        "execution.queue-capacity": "1",
    }
    overrides = {f"yukta.{name}": value for name, value in given.items()}
    settings = load_settings(environ={}, overrides=overrides)
    async with (
        Engine(settings, supervisors=[stopper]) as engine,
        HttpServer(engine, port=0) as server,
    ):
        client = await connect(server)
        endless = [make.line(name, count=0, every_ms=5) for name in ("first", "endless")]
        await client.session_with(everything(), make.chatty(), *endless)
        path = "/api/workflow/s/{}/start"
        at_once = {"Prefer": "respond-async"}
        first = await client.start("first")
        second = await client("POST", path.format("endless"), {}, headers=at_once)
        refused = await client("POST", path.format("chatty"), {}, headers=at_once)
        assert (second.status, refused.status) == (202, 429)
        await client.ok("POST", f"/api/executions/{first}/stop")
        await client.ended(second.body["executionId"])
        await client.ended(await client.start("everything"))
        page = (await client("GET", "/metrics")).body.decode()

    shown = {line.split("{")[0].split(" ")[0] for line in page.splitlines()}
    missing = {
        name
        for name, meter in METERS.items()
        if not shown & {meter.prometheus_name, f"{meter.prometheus_name}_count"}
    }
    assert sorted(missing - ELSEWHERE.keys()) == sorted(PLANNED)
    tests = Path(__file__).parents[1]
    for name, path in ELSEWHERE.items():
        text = (tests / path).read_text()
        assert name in text or name.replace(".", "_") in text


async def test_a_page_is_bounded_whatever_plugins_count(client: Any, engine: Any) -> None:
    for number in range(3 * MAX_SERIES):
        engine.meters.counter("yukta.plugin.events", plugin="X", outcome=str(number)).add()

    page = (await client("GET", "/metrics")).body

    assert page.count(b"yukta_plugin_events_total{") == MAX_SERIES + 1
