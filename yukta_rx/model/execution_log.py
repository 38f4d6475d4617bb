"""The events of the execution log, and their one written form. Feature: DUR-01.

Each event belongs to a stream: a run, by its execution id, or one of two that are no run,
`SCHEDULER` (changes of limits) and `ORPHANS` (commands for runs that nobody knows).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from yukta_rx.errors import BadRequestError
from yukta_rx.model import codec
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import exact, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULER: Final = "scheduler"
"""The stream of what was done to the scheduler."""

ORPHANS: Final = "control_orphan"
"""The stream of commands for runs that are not known."""

STREAMS: Final = frozenset({SCHEDULER, ORPHANS})
"""Streams that are no run."""


_TIMES: Final = frozenset({"time", "expires_at"})


class LogEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One event.

    Attributes:
        execution_id: the stream, as a rule a run.
        time: wall-clock time, aware.
    """

    TYPE: ClassVar[str] = ""
    HIDDEN: ClassVar[frozenset[str]] = frozenset()
    """Members that `as_dict` leaves out."""

    execution_id: str
    time: datetime

    def shown_status(self) -> str | None:
        """The status that the history shows; None if the event has none."""
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the event as the history of a run shows it: camelCase, absent members left out."""
        shown: dict[str, Any] = {"type": self.TYPE}
        for name, key, form in _members(type(self)):
            value = getattr(self, name)
            if value is None or name in self.HIDDEN:
                continue
            if name in _TIMES:
                value = rfc3339(value)
            elif form is not None:
                value = form(value)
            shown[key] = value
        if (status := self.shown_status()) is not None:
            shown["status"] = status
        return shown


class RunStarted(LogEvent, frozen=True, gc=False, kw_only=True):
    """A run was admitted; written before its id is handed out.

    Attributes:
        session_id: its session.
        workflow_id: its workflow.
        definition_version: content hash of its graph.
        payload: the start payload, whole.
        actor: who asked for it.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
        lineage: what its message ids are derived from.
        options: the options in force.
        labels: shown with it.
        step_mode: whether it began paused.
        breakpoints: those in force before the first message, as they were given.
        depth: runs above it.
        parent_execution_id: the run that started it.
        resumed_from: the aborted run that it resumes.
        restarted_from: the run that it repeats, whole or in part.
    """

    TYPE: ClassVar[str] = "RUN_STARTED"
    # Who may read a history may not read the payload.
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"payload"})

    session_id: str
    workflow_id: str
    definition_version: str = ""
    payload: Any = None
    actor: str = "anonymous"
    via: str = "REST"
    lineage: str = ""
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    step_mode: bool = False
    breakpoints: tuple[Mapping[str, Any], ...] = ()
    depth: int = 0
    parent_execution_id: str | None = None
    resumed_from: str | None = None
    restarted_from: str | None = None


class RunFinished(LogEvent, frozen=True, gc=False, kw_only=True):
    """A run ended.

    Attributes:
        status: how.
        error: why, unless it ended well.
        totals: messages in, out, failed and dropped.
    """

    TYPE: ClassVar[str] = "RUN_FINISHED"

    status: TaskStatus
    error: Mapping[str, Any] | None = None
    totals: Mapping[str, int] = msgspec.field(default_factory=dict)


class RunAborted(LogEvent, frozen=True, gc=False, kw_only=True):
    """A run was found without an end when a server started.

    Attributes:
        reason: what is known.
    """

    TYPE: ClassVar[str] = "RUN_ABORTED"

    reason: str = "the server ended while it ran"

    def shown_status(self) -> str:
        """How it ended."""
        return str(TaskStatus.ABORTED)


class RunResumed(LogEvent, frozen=True, gc=False, kw_only=True):
    """An aborted run is resumed by another one.

    Attributes:
        new_execution_id: the other one.
        attempt: which time this is, from 1.
        actor: who asked for it.
    """

    TYPE: ClassVar[str] = "RUN_RESUMED"

    new_execution_id: str
    attempt: int = 1
    actor: str = "anonymous"


class NodeFinished(LogEvent, frozen=True, gc=False, kw_only=True):
    """A node ended; for the history only.

    Attributes:
        node_id: the node.
        status: how.
        error: why, unless it ended well.
    """

    TYPE: ClassVar[str] = "NODE_FINISHED"

    node_id: str
    status: TaskStatus
    error: Mapping[str, Any] | None = None


class ControlApplied(LogEvent, frozen=True, gc=False, kw_only=True):
    """A command was applied.

    Attributes:
        command: its name.
        args: its fields beside the ids.
        actor: who gave it.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
        command_id: its id.
        node_id: the node that it was for.
        reason: why it was given; `no_op` if it changed nothing.
        named: the run that it named, where nobody knows that run.
    """

    TYPE: ClassVar[str] = "CONTROL_APPLIED"

    command: str
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)
    actor: str = "anonymous"
    via: str = "REST"
    command_id: str = ""
    node_id: str | None = None
    reason: str | None = None
    named: str | None = None

    def shown_status(self) -> str:
        """The command."""
        return self.command


class ControlRejected(ControlApplied, frozen=True, gc=False, kw_only=True):
    """A command was refused, or could not be applied; `reason` says why."""

    TYPE: ClassVar[str] = "CONTROL_REJECTED"

    def shown_status(self) -> str:
        """The command, and why not."""
        return f"{self.command}: {self.reason}"


class IdempotencyKey(LogEvent, frozen=True, gc=False, kw_only=True):
    """A key that a start was given with; written together with the start.

    Attributes:
        session_id: the session that it is for.
        workflow_id: the workflow that it is for.
        key: the key.
        fingerprint: a hash of the request.
        expires_at: when it is free again, aware.
    """

    TYPE: ClassVar[str] = "IDEMPOTENCY_KEY"
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"fingerprint"})

    session_id: str
    workflow_id: str
    key: str
    fingerprint: str
    expires_at: datetime

    @property
    def scope(self) -> tuple[str, str, str]:
        """Within which it stands for one run."""
        return self.session_id, self.workflow_id, self.key


EVENTS: Final[Mapping[str, type[LogEvent]]] = {
    event.TYPE: event
    for event in (
        RunStarted,
        RunFinished,
        RunAborted,
        RunResumed,
        NodeFinished,
        ControlApplied,
        ControlRejected,
        IdempotencyKey,
    )
}
"""Every event by its name in the log."""


def encode_event(event: LogEvent) -> bytes:
    """Return an event as one line of JSON that `decode_event` reads back.

    Raises:
        UnserialisablePayloadError: a part cannot be written exactly; `pointer` names it.
    """
    written: dict[str, Any] = {"type": event.TYPE}
    for name, key, form in _members(type(event)):
        value = getattr(event, name)
        if value is not None:
            written[key] = value if form is None else form(value)
    return codec.encode(written, plain=codec.PLAIN.issuperset(map(type, written.values())))


def decode_event(line: bytes) -> LogEvent:
    """Return the event of a line; members that this version does not know are passed over.

    Raises:
        BadRequestError: code `malformed_json`: this is not what `encode_event` writes.
    """
    written = codec.decode(line)
    try:
        kind = EVENTS[written["type"]]
        given = {
            name: written[key]
            for name in kind.__struct_fields__
            if (key := _camel(name)) in written
        }
        for name in _TIMES & given.keys():
            given[name] = datetime.fromisoformat(given[name])
        if "status" in given:
            given["status"] = TaskStatus(given["status"])
        if "breakpoints" in given:
            given["breakpoints"] = tuple(given["breakpoints"])
        return kind(**given)
    except (KeyError, TypeError, ValueError) as error:
        detail = f"this is no event of the execution log: {error!r}"
        raise BadRequestError(detail, code="malformed_json", pointer="") from error


_FORMS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "time": exact,
    "expires_at": exact,
    "status": str,
    "breakpoints": list,
}
"""How members are written that are not plain JSON."""


@cache
def _members(kind: type[LogEvent]) -> tuple[tuple[str, str, Callable[[Any], Any] | None], ...]:
    """The members of an event, each with its written name and what makes its written form."""
    return tuple((name, _camel(name), _FORMS.get(name)) for name in kind.__struct_fields__)


@cache
def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
