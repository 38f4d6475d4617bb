"""The one written form of what happens in runs. Feature: OBS-01."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from yukta_rx.errors import BadRequestError
from yukta_rx.model import codec
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import exact


def encode_event(event: ExecutionEvent) -> bytes:
    """Return an event as one line of JSON that `decode_event` reads back.

    Raises:
        UnserialisablePayloadError: its data cannot be written exactly; `pointer` names the place.
    """
    written: dict[str, Any] = {
        "type": event.type,
        "time": exact(event.time),
        "sessionId": event.session_id,
        "workflowId": event.workflow_id,
        "executionId": event.execution_id,
    }
    if event.node_id is not None:
        written["nodeId"] = event.node_id
    written["data"] = data = event.data
    return codec.encode(written, plain=codec.PLAIN.issuperset(map(type, data.values())))


def decode_event(line: bytes) -> ExecutionEvent:
    """Return the event of a line; members that this version does not know are passed over.

    Raises:
        BadRequestError: code `malformed_json`: this is not what `encode_event` writes.
    """
    written = codec.decode(line)
    try:
        return ExecutionEvent(
            type=str(written["type"]),
            time=datetime.fromisoformat(written["time"]),
            session_id=written["sessionId"],
            workflow_id=written["workflowId"],
            execution_id=written["executionId"],
            node_id=written.get("nodeId"),
            data=dict(written["data"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        detail = f"this is no event: {error!r}"
        raise BadRequestError(detail, code="malformed_json", pointer="") from error
