"""What a harness saw: outputs, failures and log lines, as plain values to compare with.

Feature: EXT-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.message import Message


@dataclass(frozen=True, slots=True)
class Output:
    """One message that a node emitted; of a terminal, one that it took.

    Attributes:
        message: the message itself.
        port: the port it left by; None for the default output.
        time: seconds of virtual time since the run began.
    """

    message: Message
    port: str | None
    time: float

    @property
    def payload(self) -> Any:
        """The payload of the message."""
        return self.message.payload

    @property
    def headers(self) -> Mapping[str, Any]:
        """The headers of the message."""
        return self.message.headers

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.message.id


class Outputs(list[Output]):
    """Outputs in the order in which they came."""

    @property
    def payloads(self) -> list[Any]:
        """Their payloads."""
        return [output.payload for output in self]

    @property
    def ids(self) -> list[str]:
        """Their message ids."""
        return [output.id for output in self]

    def to(self, port: str | None) -> Outputs:
        """Those that left by `port`; None for the default output."""
        return Outputs(output for output in self if output.port == port)

    def since(self, place: int) -> Outputs:
        """Those from `place` on."""
        return Outputs(self[place:])


class LogLine(NamedTuple):
    """A line of a plugin's log and the stream that it was written to."""

    line: str
    stream: str = "stdout"


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that was given up, or a plugin that failed without one.

    Attributes:
        exception: what was raised; None where the engine told of it by name only.
        kind: the name of the exception's class.
        detail: what it says.
        message_id: the message that the plugin was working on; None if there was none.
        attempts: how many attempts were made.
        ended: whether it ended the node.
    """

    exception: BaseException | None
    kind: str
    detail: str
    message_id: str | None
    attempts: int
    ended: bool

    @classmethod
    def of_node(cls, node: NodeRuntime) -> Failure | None:
        """What ended a node; None if it has not failed."""
        return None if node.error is None else cls._of(node.failure(), node.error, ended=True)

    @classmethod
    def of_event(cls, event: ExecutionEvent) -> Failure:
        """What a `node.message_failed` event tells: a message given up, after which it went on."""
        told = {**event.data, **event.data["error"]}
        return cls._of(told, None, ended=False)

    @classmethod
    def _of(
        cls, told: Mapping[str, Any], exception: BaseException | None, *, ended: bool
    ) -> Failure:
        return cls(
            exception=exception,
            kind=told["exception"],
            detail=told["detail"],
            message_id=told.get("messageId"),
            attempts=told["attempts"],
            ended=ended,
        )

    def __str__(self) -> str:
        at = "" if self.message_id is None else f" at message {self.message_id}"
        return f"{self.kind}: {self.detail}{at}"


def lines_of(events: list[ExecutionEvent], node_id: str) -> Iterator[LogLine]:
    """The log lines of a node."""
    for event in events:
        if event.type == "node.log" and event.node_id == node_id:
            yield LogLine(event.data["line"], event.data["stream"])
