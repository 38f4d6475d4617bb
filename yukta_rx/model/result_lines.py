"""The one written form of what reached the terminals of a run. Feature: OBS-03."""

from __future__ import annotations

from datetime import datetime
from types import MappingProxyType
from typing import Any

from yukta_rx.errors import BadRequestError
from yukta_rx.model import codec
from yukta_rx.model.claim import Claim
from yukta_rx.model.message import NO_HEADERS, Message
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import exact


def encode_result(result: ResultEvent) -> bytes:
    """Return a result as one line of JSON that `decode_result` reads back.

    Raises:
        UnserialisablePayloadError: payload or headers cannot be written exactly; `pointer` names
            the place.
    """
    written: dict[str, Any] = {
        "cursor": result.cursor,
        "type": str(result.type),
        "time": exact(result.time),
    }
    if result.node_id is not None:
        written["nodeId"] = result.node_id
    if result.message is not None:
        message = result.message
        written |= {
            "messageId": message.id,
            "headers": dict(message.headers),
            "payload": message.payload,
        }
    if result.status is not None:
        written["status"] = str(result.status)
    if result.truncated is not None:
        written["truncated"] = result.truncated
    if result.totals is not None:
        written["totals"] = dict(result.totals)
    return codec.encode(written, plain=result.message is None)


def claim_in(result: ResultEvent) -> Claim | None:
    """What stands for the payload of a result; None if it has its payload, or none."""
    payload = None if result.message is None else result.message.payload
    return payload if type(payload) is Claim else None


def decode_result(line: bytes) -> ResultEvent:
    """Return the result of a line; members that this version does not know are passed over.

    Raises:
        BadRequestError: code `malformed_json`: this is not what `encode_result` writes.
    """
    written = codec.decode(line)
    try:
        status = written.get("status")
        return ResultEvent(
            cursor=written["cursor"],
            type=ResultType(written["type"]),
            time=datetime.fromisoformat(written["time"]),
            node_id=written.get("nodeId"),
            message=_message(written) if "messageId" in written else None,
            status=None if status is None else TaskStatus(status),
            truncated=written.get("truncated"),
            totals=written.get("totals"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        detail = f"this is no result: {error!r}"
        raise BadRequestError(detail, code="malformed_json", pointer="") from error


def _message(written: dict[str, Any]) -> Message:
    headers = written["headers"]
    kept = MappingProxyType(headers) if headers else NO_HEADERS
    return Message(written["payload"], kept, None, written["messageId"])
