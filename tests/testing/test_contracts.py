"""PluginContract: built-in types as subclasses, and that none of the checks is left out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from yukta_rx import Message, NodeContext, processor
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing import ContractViolation, PluginContract
from yukta_rx.testing.plugins import PLUGIN_CHECKS

pytestmark = pytest.mark.feature("EXT-01")

REGISTRY = PluginRegistry.load()


class TestSplit(PluginContract):
    plugin = REGISTRY.get("SPLIT")
    payloads = ({"items": [1, 2, {"x": [3]}]}, {"items": []}, {"items": ["a"] * 100})


class TestFileTrigger(PluginContract):
    plugin = REGISTRY.get("FILE_TRIGGER")
    config: ClassVar = {"path": "orders.jsonl", "format": "jsonl"}
    files: ClassVar = {"orders.jsonl": b'{"n": 1}\n' * 300}


class TestIntervalTrigger(PluginContract):
    plugin = REGISTRY.get("INTERVAL_TRIGGER")
    config: ClassVar = {"everyMs": 100}
    endless = True


class TestFaultInjector(PluginContract):
    plugin = REGISTRY.get("FAULT_INJECTOR")
    config: ClassVar = {"delayMs": 50}
    settings: ClassVar = {"yukta.plugins.allow-fault-injection": True}


class TestSubWorkflow(PluginContract):
    plugin = REGISTRY.get("SUB_WORKFLOW")
    config: ClassVar = {"workflowId": "below"}
    workflows = (
        {
            "workflowId": "below",
            "nodes": [
                {"nodeId": "start", "type": "API_TRIGGER"},
                {"nodeId": "out", "type": "COLLECT_TERMINAL"},
            ],
            "edges": [{"source": "start", "target": "out"}],
        },
    )


@processor("PASSES", blocking=False)
def passes(msg: Message, cfg: Any, ctx: NodeContext) -> Message:
    """Pass messages on."""
    return msg


class TestFunction(PluginContract):
    # A plain function would become a method if it were looked up on the instance.
    plugin = passes


def test_every_check_of_the_contract_is_a_test_method() -> None:
    methods = {name.removeprefix("test_") for name in dir(PluginContract) if name[:5] == "test_"}

    assert methods == set(PLUGIN_CHECKS)


@pytest.mark.parametrize("check", PLUGIN_CHECKS)
def test_each_method_runs_the_check_of_its_name(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(TestFunction, "check", classmethod(lambda cls, name: asked.append(name)))

    getattr(TestFunction(), f"test_{check}")()

    assert asked == [check]


def test_a_plugin_that_breaks_the_contract_fails_the_test() -> None:
    @processor("IMPURE", blocking=False, pure=True)
    def impure(msg: Message, cfg: Any, ctx: NodeContext) -> Message:
        msg.payload["seen"] = True
        return msg

    class Impure(PluginContract):
        plugin = impure

    with pytest.raises(ContractViolation, match="another branch saw a change"):
        Impure().test_inputs_stay_as_they_are()
