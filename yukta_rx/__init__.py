"""yukta_rx: workflows as live, back-pressured streams that people and programs can steer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yukta_rx import errors
    from yukta_rx.app import Engine
    from yukta_rx.config.load import load_settings
    from yukta_rx.config.settings import Settings
    from yukta_rx.control.commands import (
        ClearBreakpoint,
        Command,
        PauseNode,
        PauseWorkflow,
        ResumeNode,
        ResumeWorkflow,
        SetBreakpoint,
        SetStepMode,
        SkipNode,
        StepNode,
        StepWorkflow,
        StopNode,
        StopWorkflow,
        UnskipNode,
    )
    from yukta_rx.control.reviewers import (
        Allow,
        ControlRequest,
        ControlReviewer,
        Deny,
        Hold,
        Modify,
    )
    from yukta_rx.control.supervision import ExecutionSupervisor, Proposal
    from yukta_rx.errors import BadInputError, RunAbortedError
    from yukta_rx.http.app import create_app
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.message import Message, to_port
    from yukta_rx.model.status import TaskStatus
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.plugins.config import PluginConfig
    from yukta_rx.plugins.context import NodeContext
    from yukta_rx.plugins.contract import ProcessorPlugin, processor, terminal, trigger

__version__ = "0.1.0"

__all__ = [
    "Allow",
    "BadInputError",
    "ClearBreakpoint",
    "Command",
    "ControlRequest",
    "ControlReviewer",
    "Deny",
    "Engine",
    "ExecutionEvent",
    "ExecutionSupervisor",
    "Hold",
    "Message",
    "Modify",
    "NodeContext",
    "PauseNode",
    "PauseWorkflow",
    "PluginConfig",
    "ProcessorPlugin",
    "Proposal",
    "ResumeNode",
    "ResumeWorkflow",
    "RunAbortedError",
    "SetBreakpoint",
    "SetStepMode",
    "Settings",
    "SkipNode",
    "StepNode",
    "StepWorkflow",
    "StopNode",
    "StopWorkflow",
    "TaskStatus",
    "UnskipNode",
    "WorkflowDefinition",
    "__version__",
    "create_app",
    "errors",
    "load_settings",
    "processor",
    "terminal",
    "to_port",
    "trigger",
]

# Where each public name lives. It is loaded when it is first used, so a bare import stays light.
_HOMES = {
    "Allow": "control.reviewers",
    "BadInputError": "errors",
    "ClearBreakpoint": "control.commands",
    "Command": "control.commands",
    "ControlRequest": "control.reviewers",
    "ControlReviewer": "control.reviewers",
    "Deny": "control.reviewers",
    "Engine": "app",
    "ExecutionEvent": "model.events",
    "ExecutionSupervisor": "control.supervision",
    "Hold": "control.reviewers",
    "Message": "model.message",
    "Modify": "control.reviewers",
    "NodeContext": "plugins.context",
    "PauseNode": "control.commands",
    "PauseWorkflow": "control.commands",
    "PluginConfig": "plugins.config",
    "ProcessorPlugin": "plugins.contract",
    "Proposal": "control.supervision",
    "ResumeNode": "control.commands",
    "ResumeWorkflow": "control.commands",
    "RunAbortedError": "errors",
    "SetBreakpoint": "control.commands",
    "SetStepMode": "control.commands",
    "Settings": "config.settings",
    "SkipNode": "control.commands",
    "StepNode": "control.commands",
    "StepWorkflow": "control.commands",
    "StopNode": "control.commands",
    "StopWorkflow": "control.commands",
    "TaskStatus": "model.status",
    "UnskipNode": "control.commands",
    "WorkflowDefinition": "model.workflow",
    "create_app": "http.app",
    "load_settings": "config.load",
    "processor": "plugins.contract",
    "terminal": "plugins.contract",
    "to_port": "model.message",
    "trigger": "plugins.contract",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("yukta_rx.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"yukta_rx.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
