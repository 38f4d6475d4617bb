"""Lines of an execution log: what has to be known of each, without reading it whole.

Feature: DUR-01.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from yukta_rx.durability.stores.execution_log import parent_of
from yukta_rx.model import codec
from yukta_rx.model.execution_log import (
    ControlApplied,
    ControlRejected,
    IdempotencyKey,
    NodeFinished,
    RunAborted,
    RunFinished,
    RunResumed,
    RunStarted,
    decode_event,
)
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

_ABSENT: Final = msgspec.Raw()

_STATUSES: Final = frozenset(map(str, TaskStatus))

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    RunStarted.TYPE: ("session", "workflow"),
    RunFinished.TYPE: ("status",),
    RunAborted.TYPE: (),
    RunResumed.TYPE: ("successor",),
    NodeFinished.TYPE: ("node", "status"),
    ControlApplied.TYPE: ("command",),
    ControlRejected.TYPE: ("command",),
    IdempotencyKey.TYPE: (),
}
"""By type, what `Head` has of a line that can be read; a key is read whole."""


class Head(msgspec.Struct, gc=False):
    """What has to be known of a line to keep it; the rest is read when it is asked for."""

    type: str
    stream: str = msgspec.field(name="executionId")
    time: datetime
    seq: int = 0
    apart: bool = False
    """The payload is a blob."""
    parent: str | None = msgspec.field(name="parentExecutionId", default=None)
    """The run that started it."""
    status: str | None = None
    session: msgspec.Raw = msgspec.field(name="sessionId", default=_ABSENT)
    workflow: msgspec.Raw = msgspec.field(name="workflowId", default=_ABSENT)
    node: msgspec.Raw = msgspec.field(name="nodeId", default=_ABSENT)
    successor: msgspec.Raw = msgspec.field(name="newExecutionId", default=_ABSENT)
    command: msgspec.Raw = _ABSENT

    @property
    def whole(self) -> bool:
        """Whether it has what its type cannot do without."""
        for name in _NEEDED[self.type]:
            if not getattr(self, name):
                return False
        return self.status is None or self.status in _STATUSES


_head = msgspec.json.Decoder(Head).decode

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def without_payload(line: bytes) -> bytes:
    """The line of a start without its payload; any other as it is."""
    try:
        members = _members(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return line
    if members.pop("payload", None) is None:
        return line
    return msgspec.json.encode(members)


def head_of(line: bytes) -> Head:
    """What is known of a line.

    Raises:
        BadRequestError: it is none of an execution log.
    """
    try:
        return _head(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Written with a tag, perhaps.
        event = decode_event(line)
        written = codec.decode(line)
        seq, apart = written.get("seq"), written.get("apart") is True
        place = seq if isinstance(seq, int) else 0
        return Head(
            type=event.TYPE,
            stream=event.execution_id,
            time=event.time,
            seq=place,
            apart=apart,
            parent=parent_of(event),
        )
