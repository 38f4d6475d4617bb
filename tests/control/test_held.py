"""Held messages as commands: roles, audit, dry runs, and the handle of an embedding program."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.control.commands import COMMANDS, DropHeld, EditHeld, ReleaseHeld, Role
from yukta_rx.errors import (
    ConflictError,
    NotFoundError,
    UnserialisablePayloadError,
    ValidationError,
)
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("CTL-02")

DOCUMENT = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 20, "intervalMs": 100}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}
WHO: dict[str, Any] = {"actor": "key:ada", "via": "REST"}


@asynccontextmanager
async def held_run() -> AsyncIterator[tuple[Engine, Any, Any]]:
    """An engine, a run, and the handle of its terminal, which holds the message with n = 5."""
    async with Engine() as engine:
        run = await engine.start("s", DOCUMENT)
        node = run.node("out")
        await node.set_breakpoint(when="payload.n == 5")
        await asyncio.sleep(1)
        assert node.held["payload"] == {"n": 5}
        yield engine, run, node


async def numbers(run: Any) -> list[int]:
    """What reached the terminal, once the run has ended."""
    await run.wait(100)
    return [item.payload["n"] async for item in run.results() if item.type == "RESULT"]


@virtual_time
async def test_a_program_looks_at_what_is_held_edits_it_and_lets_it_go() -> None:
    async with held_run() as (_, run, node):
        before = node.held
        await node.edit_held({"n": 50})
        after = node.held
        await node.release_held()
        seen = await numbers(run)
        with pytest.raises(NotFoundError):
            _ = node.held

    assert (after["id"], after["payload"]) == (before["id"], {"n": 50})
    assert seen == [0, 1, 2, 3, 4, 50, *range(6, 20)]


@virtual_time
async def test_a_program_drops_what_is_held() -> None:
    async with held_run() as (engine, run, node):
        await node.drop_held()
        seen = await numbers(run)
        dropped = run.detail["nodes"][1]["dropped"]
        hits = node.breakpoints

    assert (seen, dropped, hits) == ([0, 1, 2, 3, 4, *range(6, 20)], 1, [])
    assert not engine.ready


@virtual_time
async def test_what_was_done_to_a_held_message_is_audited_and_logged() -> None:
    async with held_run() as (engine, run, _):
        ids = {"execution_id": run.execution_id, "node_id": "out"}
        await engine.gateway.command(EditHeld(**ids, payload=[1]), **WHO, reason="wrong")
        await engine.gateway.command(DropHeld(**ids), **WHO)
        with pytest.raises(ConflictError) as refused:
            await engine.gateway.command(ReleaseHeld(**ids), **WHO)
        rows = engine.gateway.audit(run.execution_id)[-3:]
        log = (await engine.gateway.history(run.execution_id, 500)).items[-3:]

    assert refused.value.code == "not_paused"
    assert [(row["command"], row["args"], row["outcome"]) for row in rows] == [
        ("EditHeld", {"payload": [1]}, "APPLIED"),
        ("DropHeld", {}, "APPLIED"),
        ("ReleaseHeld", {}, "REJECTED"),
    ]
    assert rows[0]["reason"] == "wrong"
    assert [event["type"] for event in log] == [
        *("CONTROL_APPLIED", "CONTROL_APPLIED", "CONTROL_REJECTED")
    ]
    assert {event["nodeId"] for event in log} == {"out"}


@virtual_time
async def test_a_dry_run_says_what_would_be_refused_and_changes_nothing() -> None:
    async with held_run() as (engine, run, node):
        ids = {"execution_id": run.execution_id, "node_id": "out"}
        for command in (ReleaseHeld(**ids), DropHeld(**ids), EditHeld(**ids, payload=1)):
            result = await engine.gateway.command(command, **WHO, dry_run=True)
            assert str(result.outcome) == "DRY_RUN"
        with pytest.raises(UnserialisablePayloadError):
            await engine.gateway.command(EditHeld(**ids, payload={"a": object()}), **WHO)
        held = node.held
        await node.clear_breakpoint()
        await node.release_held()
        with pytest.raises(ConflictError):
            await engine.gateway.command(DropHeld(**ids), **WHO, dry_run=True)

    assert held["payload"] == {"n": 5}


def test_editing_takes_an_admin_and_the_others_an_operator() -> None:
    roles = {name: COMMANDS[name].role for name in ("ReleaseHeld", "DropHeld", "EditHeld")}

    assert roles == {
        "ReleaseHeld": Role.OPERATOR,
        "DropHeld": Role.OPERATOR,
        "EditHeld": Role.ADMIN,
    }


def test_a_payload_may_be_null_but_not_left_out() -> None:
    ids = {"executionId": "e", "nodeId": "n"}

    assert EditHeld.parse({**ids, "payload": None}).payload is None
    with pytest.raises(ValidationError) as refused:
        EditHeld.parse(ids)
    assert [fault.pointer for fault in refused.value.errors] == ["/payload"]
