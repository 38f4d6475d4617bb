"""The execution log of a run over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.config.settings import Settings
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.feature("DUR-01")


async def test_a_history_is_paged_and_shows_no_payload(client: Any, make: Any) -> None:
    await client.session_with(make.line("w"))
    execution_id = await client.start("w", {"secret": "x"})
    await client.ended(execution_id)
    path = f"/api/executions/{execution_id}/history"

    whole = (await client.ok("GET", path))["items"]
    first = await client.ok("GET", f"{path}?limit=2")
    rest = await client.ok("GET", f"{path}?limit=500&afterCursor={first['nextCursor']}")

    assert [item["type"] for item in whole] == [
        *("RUN_STARTED", "NODE_FINISHED", "NODE_FINISHED", "NODE_FINISHED", "RUN_FINISHED")
    ]
    assert (whole[0]["workflowId"], whole[0]["via"]) == ("w", "REST")
    assert whole[0]["breakpoints"] == []
    assert "secret" not in str(whole)
    assert whole[-1]["status"] == "SUCCESS"
    assert first["items"] + rest["items"] == whole
    assert rest["nextCursor"] is None
    summary = await client.ok("GET", f"/api/executions/{execution_id}")
    assert summary["recorded"] is True


async def test_what_is_not_there_and_what_is_no_place_are_refused(client: Any, make: Any) -> None:
    await client.session_with(make.line("w"))
    execution_id = await client.start("w")

    nobody = await client("GET", "/api/executions/nobody/history")
    wrong = await client("GET", f"/api/executions/{execution_id}/history?afterCursor=x")

    assert (nobody.status, nobody.code) == (404, "execution_not_found")
    assert (wrong.status, wrong.code) == (400, "invalid_cursor")


class TestForgotten:
    """A run that only the log has still."""

    KEYS = ("the-key-of-all-sessions", "the-key-of-session-one", "the-key-of-session-two")

    @pytest.fixture
    def settings(self) -> Settings:
        whole, *limited = self.KEYS
        keys: list[dict[str, Any]] = [{"name": "all", "key": whole, "role": "ADMIN"}]
        for session, key in zip(("one", "two"), limited, strict=True):
            keys.append({"name": session, "key": key, "role": "VIEWER", "sessions": [session]})
        return Settings(api_keys=keys, tracker={"max_executions": 1})

    @pytest.mark.feature("SEC-01")
    async def test_its_history_is_shown_to_keys_of_its_session_and_to_no_other(
        self, server: Any, connect: Any, make: Any
    ) -> None:
        whole, one, two = [await connect(server, headers={"X-API-Key": key}) for key in self.KEYS]
        await whole.session_with(make.line(), session="one")
        forgotten = await whole.start("w", session="one")
        await whole.ended(forgotten)
        await whole.ended(await whole.start("w", session="one"))
        path = f"/api/executions/{forgotten}/history"

        assert (await whole("GET", f"/api/executions/{forgotten}")).status == 404
        items = (await one.ok("GET", path))["items"]
        foreign = await two("GET", path)
        absent = await two("GET", "/api/executions/nobody/history")

        assert items[0]["type"] == "RUN_STARTED"
        assert (foreign.status, foreign.code) == (absent.status, absent.code)
        assert foreign.code == "execution_not_found"
        assert (await one("GET", "/api/executions/scheduler/history")).status == 404


@pytest.mark.feature("ADM-02")
async def test_a_key_is_part_of_the_history_of_its_run(client: Any, make: Any) -> None:
    await client.session_with(make.line("w"))
    body = {"sessionId": "s", "workflowId": "w"}
    started = await client.ok(
        "POST", "/api/workflow/start", body, headers={"Idempotency-Key": "k-1"}
    )
    items = (await client.ok("GET", f"/api/executions/{started['executionId']}/history"))["items"]

    assert [item["type"] for item in items[:2]] == ["RUN_STARTED", "IDEMPOTENCY_KEY"]
    assert items[1]["key"] == "k-1"
    assert "fingerprint" not in items[1]


class Broken(MemoryExecutionLogStore):
    """A store that cannot be written for a while."""

    down = False

    def _append(self, events: Sequence[Any]) -> None:
        if self.down:
            raise OSError("no space left on device")
        super()._append(events)


async def test_a_server_whose_log_cannot_be_written_is_not_ready_and_says_so(
    client: Any, make: Any, engine: Any
) -> None:
    await client.session_with(make.line())
    broken = Broken(10, 1000)
    engine.history._store = broken
    execution_id = await client.start()
    broken.down = True
    await client.ended(execution_id)
    while not engine.history.failing:
        await asyncio.sleep(0.01)
    ready, health = await client("GET", "/health/ready"), await client("GET", "/health")
    refused = await client("POST", "/api/workflow/s/w/start", {})
    broken.down = False
    while engine.history.failing:
        await asyncio.sleep(0.01)

    assert [answer.status for answer in (ready, health, refused)] == [503, 503, 503]
    assert [ready.code, refused.code] == ["store_unavailable", "store_unavailable"]
    assert health.body["components"]["log"]["status"] == "DOWN"
    assert (await client("GET", "/health/ready")).status == 200
