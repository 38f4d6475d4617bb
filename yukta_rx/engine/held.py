"""What can be done with the message that a breakpoint holds: look at it, let go, drop, edit.

A node that only the breakpoint has paused goes on when the message is let go or dropped, and the
next match is held again. One that is paused besides, by a command or while it is stepped, stays
paused, and only that one message goes.

Feature: CTL-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yukta_rx.errors import ConflictError
from yukta_rx.model import codec
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import Message

if TYPE_CHECKING:
    from yukta_rx.engine.node import NodeRuntime

DROPPED_BY = "DROP_HELD"
"""What the event and the meter of dropped messages say of one that an operator dropped."""


def held_message(node: NodeRuntime) -> dict[str, Any] | None:
    """The message that a node holds: `{id, payload, headers, since}`; None if it holds none."""
    msg = node.valve.held
    if msg is None:
        return None
    headers = dict(msg.headers)
    return {"id": msg.id, "payload": msg.payload, "headers": headers, "since": node.held_at}


async def opened(shown: dict[str, Any]) -> dict[str, Any]:
    """A held message as it is shown, with its payload in place of a reference.

    Raises:
        StoreUnavailableError: the payload cannot be read; names the blob.
    """
    payload = shown["payload"]
    return {**shown, "payload": await payload.open()} if type(payload) is Claim else shown


def check_holds(node: NodeRuntime) -> None:
    """Raise ConflictError if a node holds no message."""
    if not node.valve.holds:
        raise ConflictError(
            f"node {node.id} holds no message: no breakpoint has paused it",
            code="not_paused",
            nodeId=node.id,
        )


def release(node: NodeRuntime) -> None:
    """Let the held message through, once.

    Raises:
        ConflictError: none is held.
    """
    check_holds(node)
    if node.held_alone:
        node.resume()
    else:
        node.valve.step(1)


def drop(node: NodeRuntime) -> None:
    """Discard the held message: it counts as dropped, and an event tells its id.

    Raises:
        ConflictError: none is held.
    """
    check_holds(node)
    msg: Message = node.valve.drop_held()
    if node.on_dropped is not None:
        node.on_dropped(None, [msg])
    node.say("edge.dropped", {"count": 1, "sample": [msg.id], "overflow": DROPPED_BY})
    if node.held_alone:
        node.resume()


def edit(node: NodeRuntime, payload: Any) -> None:
    """Give the held message another payload; its id and headers stay, and it is still held.

    Raises:
        ConflictError: none is held.
        UnserialisablePayloadError: the payload has no exact JSON form.
    """
    check_holds(node)
    msg: Message = node.valve.held
    # A payload of its own, which the caller cannot change afterwards.
    own = codec.decode(codec.encode(payload))
    node.valve.replace_held(Message(own, msg.headers, msg.origin, msg.id, msg.attempt, msg.trail))
