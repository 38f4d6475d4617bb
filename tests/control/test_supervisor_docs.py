"""The code and the rules of docs/supervisors.md do what the page says."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.rule_supervisor import RuleSupervisor
from yukta_rx.errors import ConflictError
from yukta_rx.testing.clock import run_virtual

pytestmark = pytest.mark.feature("CTL-07")

PAGE = (Path(__file__).parents[2] / "docs" / "supervisors.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def failing(**engine: Any) -> dict[str, Any]:
    """A workflow whose second node fails each message that it gets."""
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 50}},
            {
                "nodeId": "bad",
                "type": "FAULT_INJECTOR",
                "config": {"failWhen": "true", "engine": engine},
            },
            {"nodeId": "out", "type": "NULL_TERMINAL"},
            {"nodeId": "lost", "type": "NULL_TERMINAL"},
        ],
        "edges": [
            {"source": "in", "target": "bad"},
            {"source": "bad", "target": "out"},
            {"source": "bad", "target": "lost", "sourcePort": "error"},
        ],
    }


def steered(supervisor: Any, seconds: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Audit of a failing run under a supervisor, and the list of supervisors."""

    async def story() -> Any:
        allowed = Settings(plugins={"allow_fault_injection": True})
        async with Engine(allowed, supervisors=[supervisor]) as engine:
            retry = {"maxAttempts": 3, "backoffMs": 100}
            run = await engine.start("s", failing(onError="ROUTE", retry=retry))
            await asyncio.sleep(seconds)
            rows = engine.gateway.audit(run.execution_id)
            shown = engine.supervisors.list()
            with suppress(ConflictError):  # the supervisor has stopped it
                await run.stop("KILL")
            return rows, shown

    return run_virtual(story())


def defined(code: str, name: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(code, "docs/supervisors.md", "exec"), space)
    return space[name]


def test_the_first_supervisor_pauses_at_a_dead_letter() -> None:
    rows, [shown] = steered(defined(blocks("python")[0], "pause_on_dead_letter"), 5)

    [row] = rows
    assert (row["command"], row["actor"]) == ("PauseWorkflow", "dead-letters")
    assert row["reason"] == "dead letter of bad"
    assert shown["id"] == "dead-letters"


def test_the_one_in_rx_stops_what_retries() -> None:
    rows, _ = steered(defined(blocks("python")[1], "StopWhatRepeats"), 70)

    assert (rows[0]["command"], rows[0]["actor"]) == ("StopWorkflow", "retries")


def test_the_rules_are_right_and_pause_the_node() -> None:
    rules = RuleSupervisor(json.loads(blocks("json")[0]))

    rows, _ = steered(rules, 5)

    assert (rows[0]["command"], rows[0]["nodeId"]) == ("PauseNode", "bad")
    assert rows[0]["reason"].startswith("rule failure storm: RuntimeError of ")
