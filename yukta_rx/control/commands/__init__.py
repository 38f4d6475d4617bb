"""Every command, one file per family; `COMMANDS` is the sealed set. Feature: CTL-01."""

from yukta_rx.control.commands.base import (
    Command,
    CommandResult,
    Effect,
    NodeCommand,
    OfNode,
    Outcome,
    Role,
    RunCommand,
)
from yukta_rx.control.commands.breakpoint import ClearBreakpoint, SetBreakpoint
from yukta_rx.control.commands.held import DropHeld, EditHeld, ReleaseHeld
from yukta_rx.control.commands.limits import SetLimits, SetPriority
from yukta_rx.control.commands.pause_resume import (
    PauseNode,
    PauseWorkflow,
    ResumeNode,
    ResumeWorkflow,
)
from yukta_rx.control.commands.restart import (
    Recover,
    RestartFromNode,
    RestartWorkflow,
    RetryNode,
)
from yukta_rx.control.commands.signal import SignalNode
from yukta_rx.control.commands.skip import SkipNode, UnskipNode
from yukta_rx.control.commands.step import SetStepMode, StepNode, StepWorkflow
from yukta_rx.control.commands.stop import StopNode, StopWorkflow

COMMANDS: dict[str, type[Command]] = {
    command.name(): command
    for command in (
        PauseWorkflow,
        ResumeWorkflow,
        StepWorkflow,
        SetStepMode,
        StopWorkflow,
        PauseNode,
        ResumeNode,
        StepNode,
        StopNode,
        SkipNode,
        UnskipNode,
        SetBreakpoint,
        ClearBreakpoint,
        ReleaseHeld,
        DropHeld,
        EditHeld,
        SetLimits,
        SetPriority,
        SignalNode,
        RestartWorkflow,
        RestartFromNode,
        RetryNode,
        Recover,
    )
}
"""Every command by its name, which is its `type` in requests and its name in the audit."""

__all__ = [
    "COMMANDS",
    "ClearBreakpoint",
    "Command",
    "CommandResult",
    "DropHeld",
    "EditHeld",
    "Effect",
    "NodeCommand",
    "OfNode",
    "Outcome",
    "PauseNode",
    "PauseWorkflow",
    "Recover",
    "ReleaseHeld",
    "RestartFromNode",
    "RestartWorkflow",
    "ResumeNode",
    "ResumeWorkflow",
    "RetryNode",
    "Role",
    "RunCommand",
    "SetBreakpoint",
    "SetLimits",
    "SetPriority",
    "SetStepMode",
    "SignalNode",
    "SkipNode",
    "StepNode",
    "StepWorkflow",
    "StopNode",
    "StopWorkflow",
    "UnskipNode",
]
