"""A secret that a workflow uses: it stands in no answer, event, log line or audit row."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.reviewers import Deny, Hold
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor
from yukta_rx.security.masking import MASK, MaskingFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("SEC-02")

SECRET = 'hunter2-"quoted"-hunter2'
KEY = "the-key-of-this-server"


class LeakConfig(PluginConfig):
    """What a careless plugin is told."""

    password: str
    fail: bool = True


@processor("LEAK", config=LeakConfig, ports=["error"], blocking=False)
async def leak(msg: Message, config: LeakConfig, ctx: NodeContext) -> Any:
    """Log the secret, and fail with it."""
    ctx.log(f"logging in with {config.password}")
    logging.getLogger("some.library").warning("sent %r", config.password)
    if config.fail:
        raise ValueError(f"the password {config.password!r} was refused")
    return {"password": config.password}


@processor("LEAK_FROM_CONTEXT", blocking=False)
async def leak_from_context(msg: Message, config: PluginConfig, ctx: NodeContext) -> Any:
    """Fail with a secret that it asked for itself."""
    raise ValueError(f"no: {ctx.secrets.get('mail')}")  # type: ignore[union-attr]


class Repeats:
    """Refuses with the words that it was given."""

    id = "repeats"

    async def review(self, request: Any) -> Any:
        if request.command.name() == "StepWorkflow":
            return Hold(f"held, {request.reason}")
        return Deny(f"no: {request.reason}")


@pytest.fixture
def settings() -> Settings:
    return Settings(api_key=KEY, execution={"shutdown_timeout": timedelta(milliseconds=100)})


@pytest.fixture
async def engine(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    monkeypatch.setenv("YUKTA_SECRET_MAIL", SECRET)
    plugins = [leak, leak_from_context]
    async with Engine(settings, plugins=plugins, reviewers=[Repeats()]) as made:
        yield made


@pytest.fixture
async def client(server: Any, connect: Any) -> Any:
    return await connect(server, headers={"X-API-Key": KEY})


def leaking(workflow_id: str, kind: str = "LEAK", **options: Any) -> dict[str, Any]:
    config = {"password": "decrypted:mail"} if kind == "LEAK" else {}
    nodes = [
        {"nodeId": "start", "type": "API_TRIGGER"},
        {"nodeId": "leak", "type": kind, "config": config | options},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ]
    edges = [{"source": "start", "target": "leak"}, {"source": "leak", "target": "out"}]
    if "onError" in options.get("engine", {}):
        nodes.append({"nodeId": "letters", "type": "COLLECT_TERMINAL"})
        edges.append({"source": "leak", "target": "letters", "sourcePort": "error"})
    return {"workflowId": workflow_id, "nodes": nodes, "edges": edges}


async def everything(client: Any, run: str, session: str = "s") -> str:
    """All that the server says of a run."""
    place = f"/api/executions/{run}"
    paths = [
        f"{place}?include=nodes,edges,children",
        *(f"{place}/{part}" for part in ("progress", "nodes", "edges", "logs", "commands")),
        f"/api/sessions/{session}/executions/{run}/results",
        f"/api/events?executionId={run}&limit=500",
        "/api/control/audit",
        "/api/control/held",
    ]
    headers = {"Accept": "application/json"}
    return "".join([str(await client.ok("GET", path, headers=headers)) for path in paths])


@pytest.mark.parametrize(
    "document",
    [
        leaking("w"),
        leaking("w", "LEAK_FROM_CONTEXT"),
        leaking("w", engine={"onError": "ROUTE"}),
        leaking("w", engine={"retry": {"maxAttempts": 2, "backoffMs": 1}}),
    ],
    ids=["fails", "fails by its own", "dead letter", "retried"],
)
async def test_a_run_that_fails_with_a_secret_says_it_nowhere(
    document: dict[str, Any], client: Any
) -> None:
    await client.session_with(document)
    run = await client.start()
    await client.ended(run)

    told = await everything(client, run)

    assert "hunter2" not in told
    assert MASK in told


async def test_events_and_lines_are_masked_in_streams_too(client: Any) -> None:
    await client.session_with(leaking("w"))
    async with client.stream("/api/events/stream") as stream:
        run = await client.start()
        await stream.type("execution.finished")
    async with client.stream(f"/api/executions/{run}/logs") as lines:
        told = await lines.rest()

    assert "hunter2" not in "".join(event.data for event in [*stream.events, *told])
    assert f"logging in with {MASK}" in told[0].data


async def test_a_result_is_the_users_own_and_stays_as_it_is(client: Any) -> None:
    await client.session_with(leaking("w", fail=False))

    ran = await client.ok("POST", "/api/workflow/s/w/run", {})

    assert [item["payload"] for item in ran["results"]] == [{"password": SECRET}]


async def test_what_is_said_with_a_command_is_masked_in_problem_audit_and_events(
    client: Any, make: Any
) -> None:
    await client.session_with(leaking("w"), make.line("endless", count=0, every_ms=5))
    await client.ended(await client.start())
    run = await client.start("endless")
    place = f"/api/executions/{run}"

    refused = await client("POST", f"{place}/pause", {"reason": f"it is {SECRET}"})
    held = await client("POST", f"{place}/step", {"reason": f"it is {SECRET}"})
    many = await client.ok(
        "POST",
        "/api/commands",
        {"commands": [{"type": "PauseWorkflow", "executionId": run, "reason": SECRET}]},
    )

    assert (refused.status, held.status) == (403, 202)
    assert refused.body["reason"] == f"no: it is {MASK}"
    assert "hunter2" not in str(refused.body) + str(many) + await everything(client, run)


async def test_a_record_of_the_log_is_masked_by_the_filter(client: Any, engine: Engine) -> None:
    records: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    handler = Kept()
    handler.addFilter(MaskingFilter(engine.masker))
    logging.getLogger().addHandler(handler)
    try:
        await client.session_with(leaking("w"))
        await client.ended(await client.start())
    finally:
        logging.getLogger().removeHandler(handler)

    assert f"sent '{MASK}'" in records
    assert "hunter2" not in "".join(records)


async def test_the_key_of_the_server_is_a_secret_as_well(client: Any) -> None:
    answer = await client("GET", f"/api/executions/{KEY}")

    assert answer.status == 404
    assert KEY not in str(answer.body)
