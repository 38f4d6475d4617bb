"""Testing kit: virtual time, harnesses, contract suites, the Reactive Streams rules as checks.

The names below are what authors of plugins and workflows use; each is loaded when it is first
asked for. Its pytest fixtures are in `testing.pytest_plugin`.

Feature: EXT-01.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yukta_rx.testing.clock import VirtualClock, run_virtual, virtual_time
    from yukta_rx.testing.contracts import PluginContract
    from yukta_rx.testing.plugin_harness import AsyncPluginHarness, PluginHarness
    from yukta_rx.testing.plugins import ContractViolation, check_processor
    from yukta_rx.testing.workflow_harness import WorkflowHarness

__all__ = [
    "AsyncPluginHarness",
    "ContractViolation",
    "PluginContract",
    "PluginHarness",
    "VirtualClock",
    "WorkflowHarness",
    "check_processor",
    "run_virtual",
    "virtual_time",
]

_HOMES = {
    "AsyncPluginHarness": "plugin_harness",
    "ContractViolation": "plugins",
    "PluginContract": "contracts",
    "PluginHarness": "plugin_harness",
    "VirtualClock": "clock",
    "WorkflowHarness": "workflow_harness",
    "check_processor": "plugins",
    "run_virtual": "clock",
    "virtual_time": "clock",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"yukta_rx.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
