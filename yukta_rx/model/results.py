"""What reaches the terminals of a run, and the marks that close each of them and the run.

Feature: OBS-03.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import rfc3339


class ResultType(StrEnum):
    """RESULT carries a message; NODE_END and EXECUTION_END close a terminal and the run."""

    RESULT = "RESULT"
    NODE_END = "NODE_END"
    EXECUTION_END = "EXECUTION_END"


class ResultEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One item of a run's results channel.

    Attributes:
        cursor: place in the channel, counted from 1 in steps of 1.
        type: what the item is.
        time: wall-clock time, aware.
        node_id: the terminal; None for EXECUTION_END.
        message: what reached the terminal, for a RESULT; its id is worked out if somebody reads it.
        status: how the terminal or the run ended, for an end.
        truncated: for an end, whether the replay buffer no longer holds everything before it.
        totals: for an end, the counters `in`, `out`, `failed` and `dropped`.
    """

    cursor: int
    type: ResultType
    time: datetime
    node_id: str | None = None
    message: Message | None = None
    status: TaskStatus | None = None
    truncated: bool | None = None
    totals: Mapping[str, int] | None = None

    @property
    def message_id(self) -> str | None:
        """The id of the message, for a RESULT."""
        return None if self.message is None else self.message.id

    @property
    def headers(self) -> Mapping[str, Any] | None:
        """The headers of the message, for a RESULT."""
        return None if self.message is None else self.message.headers

    @property
    def payload(self) -> Any:
        """The payload of the message, for a RESULT; None is a payload like any other."""
        return None if self.message is None else self.message.payload

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: camelCase names, the cursor as text, absent members left out."""
        shown: dict[str, Any] = {"cursor": str(self.cursor), "type": str(self.type)}
        if self.node_id is not None:
            shown["nodeId"] = self.node_id
        if self.type is ResultType.RESULT:
            shown["messageId"] = self.message_id
            shown["headers"] = dict(self.headers or {})
            shown["payload"] = self.payload
        if self.status is not None:
            shown["status"] = str(self.status)
        if self.truncated is not None:
            shown["truncated"] = self.truncated
        if self.totals is not None:
            shown["totals"] = dict(self.totals)
        shown["time"] = rfc3339(self.time)
        return shown
