"""Command: an instruction that is reviewed, ordered, applied and audited; declared once.

A command class says its fields, its role, its route and its tool; the HTTP routes, the one door
`POST .../commands` and the audit are made from that. A command is applied on the event loop. One
to a live run is applied synchronously, between two batches, so it is exact, and what it returned
is in force.

Feature: CTL-01.
"""

from __future__ import annotations

import math
import types
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from yukta_rx.errors import Fault, ValidationError, json_pointer
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from datetime import datetime

    from yukta_rx.control.desk import Desk, Target
    from yukta_rx.control.pending_start import PendingStart, Started
    from yukta_rx.engine.run import Run


_COMMON: Final = frozenset({"execution_id", "node_id", "reason"})


class Outcome(StrEnum):
    """What became of a command."""

    APPLIED = "APPLIED"
    NO_OP = "NO_OP"
    QUEUED = "QUEUED"
    HELD = "HELD"
    DRY_RUN = "DRY_RUN"
    REJECTED = "REJECTED"


class Role(StrEnum):
    """Who may give a command. Feature: SEC-01."""

    VIEWER = "VIEWER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"

    @property
    def rank(self) -> int:
        """Grows with what it allows."""
        return _RANKS[self]


_RANKS: Final[dict[Role, int]] = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What applying a command did.

    Attributes:
        changed: False if it was so already, which makes the outcome NO_OP.
        answer: ACCEPTED or QUEUED, of a signal.
        waits: the start that it made, which may have to wait for its slot.
        started: the run that it started.
    """

    changed: bool = True
    answer: str | None = None
    waits: PendingStart | None = None
    started: Started | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(ABC):
    """An instruction to the run `execution_id`, live or not; most are a `RunCommand`.

    `reason` is why, for the audit; who hands the command in may say it instead.

    Class attributes:
        role: the least role that may give it.
        scope: path of the resource that it is about.
        route: (method, path below `scope`).
        also: further methods of the same route.
        aliases: further whole paths of the same route.
        tool: the action of the MCP tool that gives it.
        summary: one sentence for documents.
        errors: codes with which it is refused, beside those of every command.
        starts: whether it starts a run, which is then what its route answers with.
        body_only: fields that cannot stand in the query.
    """

    role: ClassVar[Role] = Role.OPERATOR
    scope: ClassVar[str] = "/api/executions/{executionId}"
    route: ClassVar[tuple[str, str]]
    also: ClassVar[tuple[str, ...]] = ()
    aliases: ClassVar[tuple[str, ...]] = ()
    tool: ClassVar[str]
    summary: ClassVar[str]
    errors: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[bool] = False
    body_only: ClassVar[frozenset[str]] = frozenset()

    execution_id: str = field(kw_only=False)
    reason: str | None = field(default=None, compare=False)

    @classmethod
    def name(cls) -> str:
        """Its name in requests and in the audit."""
        return cls.__name__

    def target(self, desk: Desk) -> Target | None:
        """What it is about, for the audit; None if that does not exist."""
        return desk.target(self.execution_id)

    @abstractmethod
    def examine(self, desk: Desk) -> None:
        """Raise what `perform` would raise, as far as that is known before; change nothing."""

    @abstractmethod
    def perform(self, desk: Desk) -> Effect | Awaitable[Effect]:
        """Do it, on the loop. Only one that starts a run, or has to write first, is awaited.

        Raises:
            YuktaError: it cannot be applied, and nothing was changed.
        """

    @classmethod
    @cache
    def own_fields(cls) -> dict[str, tuple[type, Any]]:
        """Fields beside the ids: camelCase name to (type, default; `...` if required).

        Made once per class; do not change it.
        """
        hints = get_type_hints(cls)
        return {
            _camel(item.name): (
                _plain_type(hints[item.name]),
                ... if item.default is MISSING else item.default,
            )
            for item in fields(cls)
            if item.name not in _COMMON
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Make one from a request; values may be text, as in a query.

        Raises:
            ValidationError: a field is unknown, missing or of the wrong type; lists every fault.
        """
        hints = get_type_hints(cls)
        known = {_camel(item.name): item for item in fields(cls) if item.name != "reason"}
        faults = [
            Fault(json_pointer([key]), "unknown_field", f"{cls.name()} has no field {key}")
            for key in values
            if key not in known
        ]
        made: dict[str, Any] = {}
        for name, item in known.items():
            if name not in values:
                if item.default is MISSING:
                    detail = f"{cls.name()} needs {name}"
                    faults.append(Fault(json_pointer([name]), "missing", detail))
                continue
            try:
                made[item.name] = _converted(values[name], _plain_type(hints[item.name]))
            except ValueError as error:
                faults.append(Fault(json_pointer([name]), "invalid_value", str(error)))
        if not faults:
            try:
                return cls(**made)
            except ValueError as error:
                faults.append(Fault("", "invalid_value", str(error)))
        raise ValidationError(faults)

    def arguments(self) -> dict[str, Any]:
        """The fields beside the ids, as the audit shows them."""
        return {name: _shown(getattr(self, _snake(name))) for name in self.own_fields()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand(Command):
    """An instruction to a live run."""

    @abstractmethod
    def check(self, run: Run) -> None:
        """Raise what `apply` would raise, and change nothing."""

    @abstractmethod
    def apply(self, run: Run) -> bool | Effect:
        """Do it; False if that was so already.

        Raises:
            YuktaError: it cannot be applied, and nothing was changed.
        """

    def examine(self, desk: Desk) -> None:
        """Raise what `perform` would raise, and change nothing."""
        self.check(desk.run(self.execution_id))

    def perform(self, desk: Desk) -> Effect | Awaitable[Effect]:
        """Do it to the live run."""
        done = self.apply(desk.run(self.execution_id))
        return done if isinstance(done, Effect) else Effect(changed=done)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfNode(Command):
    """An instruction about one node of a run, live or not; most are a `NodeCommand`."""

    scope: ClassVar[str] = "/api/executions/{executionId}/nodes/{nodeId}"

    node_id: str = field(kw_only=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand(OfNode, RunCommand):
    """An instruction to one node of a live run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What became of a command.

    Attributes:
        command_id: given by the client, or made here.
        seq: its place among the commands of its run, from 1.
        command: its name.
        outcome: APPLIED, NO_OP, QUEUED, HELD or DRY_RUN; a rejected command raises instead.
        actor: who gave it.
        applied_at: when it was in force, aware.
        state: the run afterwards: status, paused, stepMode.
        reason: what the caller gave as reason, or why it is held.
        answer: ACCEPTED or QUEUED, of a signal.
        started: the run that it started.
        recorded: False while it is in force, but the execution log does not have it yet.
    """

    command_id: str
    seq: int
    execution_id: str
    node_id: str | None
    command: str
    outcome: Outcome
    actor: str
    applied_at: datetime
    state: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    answer: str | None = None
    started: Started | None = None
    recorded: bool = True

    def as_dict(self) -> dict[str, Any]:
        """API.md's `CommandResult`."""
        shown: dict[str, Any] = {
            "commandId": self.command_id,
            "seq": self.seq,
            "executionId": self.execution_id,
            "command": self.command,
            "outcome": str(self.outcome),
            "actor": self.actor,
            "appliedAt": rfc3339(self.applied_at),
            "state": dict(self.state),
        }
        if self.node_id is not None:
            shown["nodeId"] = self.node_id
        if self.reason is not None:
            shown["reason"] = self.reason
        if self.answer is not None:
            shown["answer"] = self.answer
        if self.started is not None:
            shown["newExecutionId"] = self.started.execution_id
        if not self.recorded:
            shown["recorded"] = False
        return shown


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _plain_type(hint: Any) -> type:
    if hint is Any:
        return object
    if get_origin(hint) in (Union, types.UnionType):
        [hint] = [item for item in get_args(hint) if item is not type(None)]
    kind: type = hint
    return kind


def _converted(value: Any, wanted: type) -> Any:
    if wanted is object:
        return value
    if wanted is bool:
        words = {"true": True, "false": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        raise ValueError(f"must be true or false, not {value!r}")
    if wanted is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            return int(value) if isinstance(value, str) else int(str(value))
        except ValueError:
            raise ValueError(f"must be a whole number, not {value!r}") from None
    if wanted is float:
        try:
            number = None if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not math.isfinite(number):
            raise ValueError(f"must be a number, not {value!r}")
        return value if isinstance(value, int) else number
    if issubclass(wanted, StrEnum):
        try:
            return wanted(str(value).upper())
        except ValueError:
            known = ", ".join(wanted)
            raise ValueError(f"must be one of {known}, not {value!r}") from None
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    return value


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, StrEnum) else value
