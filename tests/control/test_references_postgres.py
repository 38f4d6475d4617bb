"""Large payloads of an engine on PostgreSQL: once in a table, also over a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.control.crash import dethroned
from tests.control.test_payload_references import GATE, flow, fresh, gated, many, stamp
from tests.control.test_recovery_postgres import recorded
from tests.durability.conftest import postgres, postgres_schema, postgres_server
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import Recover
from yukta_rx.control.handles import Execution
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.durability.postgres.database import Database

pytestmark = [pytest.mark.durable, pytest.mark.feature("DUR-02", "DUR-04")]

__all__ = ["fresh", "postgres", "postgres_schema", "postgres_server"]

LINE = flow(
    ("in", "MANY"),
    ("keep", "FILTER", {"config": {"when": "payload.n >= 0"}}),
    ("gate", "GATED"),
    ("out", "COLLECT_TERMINAL"),
)
ASKED = {"count": 4, "size": 8 * 1024, "note": "x" * 8 * 1024}


@pytest.fixture
def engine(postgres: Database, postgres_schema: str) -> Callable[[], Engine]:
    """An engine on the database."""
    registry = PluginRegistry.load(None, extra=[many, gated, stamp])

    def on() -> Engine:
        given = {
            "profile": "postgres",
            "postgres.url": postgres_schema,
            "payload.claim-check-bytes": "4KiB",
            "execution.shutdown-timeout": "100ms",
        }
        overrides = {f"yukta.{name}": value for name, value in given.items()}
        return Engine(load_settings(overrides=overrides, environ={}), registry=registry)

    return on


async def blobs(database: Database) -> int:
    return int(await database.fetchval("SELECT count(*) FROM blob"))


async def numbers(run: Any) -> list[tuple[int, int]]:
    return [
        (item.payload["n"], len(item.payload["text"]))
        async for item in run.results()
        if item.type == "RESULT"
    ]


async def test_a_payload_is_there_once_whatever_passes_it_on_and_goes_on_after_a_crash(
    engine: Callable[[], Engine], postgres: Database
) -> None:
    async with dethroned(engine()) as first:
        run = await first.start("s", LINE, ASKED)
        await recorded(first, run.execution_id, "keep", 4)
    # One for each message, and that of the start.
    assert await blobs(postgres) == 5

    GATE.add("open")
    wanted = [(n, 8 * 1024) for n in range(4)]
    async with engine() as second:
        result = await second.gateway.command(Recover(run.execution_id), actor="ada", via="REST")
        again = Execution(second, result.started.execution_id)
        assert await again.wait() is TaskStatus.SUCCESS
        assert await numbers(again) == wanted
        assert await second.gateway.payload(again.execution_id) == ASKED
    async with engine() as third:
        assert await numbers(Execution(third, again.execution_id)) == wanted
        shown = await third.gateway.outputs(again.execution_id, "gate", 10)
        assert [(one["payload"]["n"]) for one in shown["items"]] == [0, 1, 2, 3]
    assert await blobs(postgres) == 5
    lines = await postgres.fetchval("SELECT string_agg(result, '') FROM execution_result")
    assert lines.count('"apart":true') == 4
