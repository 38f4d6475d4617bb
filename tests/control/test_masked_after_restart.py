"""What an earlier server was told of a secret is masked by the next one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.control.crash import engine_on
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.security.masking import MASK
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2hunter2"


@processor("TELL", blocking=False)
async def tell(msg, cfg, ctx):
    """Say a secret where nobody should."""
    return {"told": ctx.secrets.get("mail")}


LINE = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "tell", "type": "TELL"},
        {"nodeId": "out", "type": "NULL_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "tell"}, {"source": "tell", "target": "out"}],
}


@virtual_time
@pytest.mark.feature("SEC-02")
async def test_start_payloads_and_outputs_of_an_earlier_server_are_masked_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUKTA_SECRET_MAIL", SECRET)
    registry = PluginRegistry.load(None, extra=[tell])
    async with engine_on(tmp_path / "data", registry) as engine:
        run = await engine.start("s", LINE, {"mail": SECRET})
        await run.wait()

    # Nothing has asked this one for the secret yet.
    async with engine_on(tmp_path / "data", registry) as engine:
        payload = await engine.gateway.payload(run.execution_id)
        outputs = await engine.gateway.outputs(run.execution_id, "tell", 10, 0)
        history = await engine.gateway.history(run.execution_id, 50)

    assert payload == {"mail": MASK}
    assert [item["payload"] for item in outputs["items"]] == [{"told": MASK}]
    assert SECRET not in json.dumps(history.items, default=str)
