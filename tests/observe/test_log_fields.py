"""What the engine logs about a run or a node says so beside its text; it configures no logging."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.model.log_fields import LOG_FIELDS, log_fields
from yukta_rx.plugins.contract import processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("OBS-02")

LINE = {"t": ("SEQUENCE_TRIGGER", {"count": 3}), "p": "SHY", "c": "CONSOLE_TERMINAL"}


def about(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in LOG_FIELDS if hasattr(record, name)}


def test_what_is_not_known_is_left_out() -> None:
    assert log_fields("r", "n") == {"executionId": "r", "nodeId": "n"}
    assert log_fields(request_id="q") == {"requestId": "q"}
    assert log_fields() == {}


@virtual_time
async def test_a_record_about_a_node_names_its_run_too(new_scene, caplog) -> None:
    def refuse(cfg: Any, ctx: Any) -> None:
        raise OSError("not today")

    @processor("SHY", blocking=False, open=refuse)
    def shy(msg: Any, cfg: Any, ctx: Any) -> Any:
        return msg

    async with new_scene() as scene:
        run = scene.run(LINE, "t > p > c", shy)
        await run.execute()

    [record] = [r for r in caplog.records if "could not be opened" in r.getMessage()]
    assert about(record) == {"executionId": run.execution_id, "nodeId": "p"}


@virtual_time
async def test_a_record_about_a_run_names_it(new_scene, caplog) -> None:
    async with new_scene() as scene:
        channel = scene.results.channel("r1", "s")
        channel.publish(scene.end(1))
        channel.publish(scene.result(2))
        scene.start()
        scene.emit("node.status", "n", status="NONSENSE")
        await scene.tracker.drained()

    late, lost = caplog.records
    assert about(late) == {"executionId": "r1"}
    assert about(lost) == {"executionId": "r1", "nodeId": "n"}


async def test_an_engine_leaves_the_logging_of_its_program_alone(make_line: Any) -> None:
    def configured() -> list[Any]:
        names = [name for name in logging.root.manager.loggerDict if name.startswith("yukta")]
        loggers = [logging.root, *map(logging.getLogger, names)]
        return [(one.name, one.level, list(one.handlers), one.propagate) for one in loggers]

    before = {name: rest for name, *rest in configured()}
    async with Engine() as engine:
        await (await engine.start("s", make_line, {})).wait(10)

        for name, *rest in configured():
            assert rest == before.get(name, [logging.NOTSET, [], True])


@pytest.fixture
def make_line() -> dict[str, Any]:
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "t", "type": "SEQUENCE_TRIGGER", "config": {"count": 3}},
            {"nodeId": "c", "type": "CONSOLE_TERMINAL"},
        ],
        "edges": [{"source": "t", "target": "c"}],
    }
