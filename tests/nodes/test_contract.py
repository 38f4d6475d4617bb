"""Every built-in node type keeps the plugin contract."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing.plugins import PLUGIN_CHECKS, PluginCase, check_plugin

pytestmark = [pytest.mark.feature("EXT-01"), pytest.mark.slow]

SPECS = {spec.type: spec for spec in PluginRegistry.load().specs()}
# What a type is tried with, unless its example and plain objects do.
CASES: dict[str, dict[str, Any]] = {
    "API_TRIGGER": {"payloads": [{"items": list(range(1000))}]},
    "FILTER": {"payloads": [{"n": 2, "tag": "a"}, {"n": 3, "tag": "b"}, {"n": 4, "tag": "b"}]},
    "SWITCH": {"payloads": [{"total": 5}, {"total": 100, "x": [1]}, {"total": 1000}]},
    "FAULT_INJECTOR": {
        "config": {"delayMs": 50},
        "settings": {"yukta.plugins.allow-fault-injection": True},
    },
    "BATCH": {"config": {"size": 10, "maxWaitMs": 500}},
    "DEDUPLICATE": {"config": {"window": 100}},
    "FILE_TERMINAL": {"config": {"path": "out.csv", "format": "csv", "mode": "REPLACE"}},
    "FILE_TRIGGER": {"files": {"orders.jsonl": b'{"n": 1}\n{"n": 2}\n' * 300}},
    "INTERVAL_TRIGGER": {"endless": True},
    "SPLIT": {"payloads": [{"items": [1, 2, {"x": [3]}]}, {"items": []}, {"items": ["a"] * 200}]},
    "SUB_WORKFLOW": {
        "config": {"workflowId": "twice"},
        "workflows": [
            {
                "workflowId": "twice",
                "nodes": [
                    {"nodeId": "in", "type": "API_TRIGGER"},
                    {"nodeId": "wait", "type": "DELAY", "config": {"ms": 10}},
                    {"nodeId": "out", "type": "COLLECT_TERMINAL"},
                ],
                "edges": [
                    {"source": "in", "target": "wait"},
                    {"source": "in", "target": "out"},
                    {"source": "wait", "target": "out"},
                ],
            }
        ],
    },
    "TRANSFORM": {"payloads": [{"price": 1}, {"price": 2.5, "x": {"y": [1]}}]},
}


@pytest.mark.parametrize("check", PLUGIN_CHECKS)
@pytest.mark.parametrize("type_", SPECS)
def test_built_in_type_keeps(type_: str, check: str) -> None:
    check_plugin(check, PluginCase(SPECS[type_], **CASES.get(type_, {})))
