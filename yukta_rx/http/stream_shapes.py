"""What a stream says of itself: the data of `stream.*`, without the envelope of events.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from yukta_rx.http.shapes import Count, Milliseconds, Shape


class Hello(Shape):
    """The first frame: where the feed is, and what was understood of the request."""

    epoch: str
    head_seq: Count
    oldest_seq: Count
    leader: bool
    filters: dict[str, list[str]]
    retry_ms: Milliseconds
    coalesce_ms: Milliseconds | None = None


class StreamGap(Shape):
    """Events that were wanted are missing; they were not read in time, or are no longer kept."""

    start: Count = Field(alias="from")
    stop: Count = Field(alias="to")
    dropped: Count
    reason: Literal["slow-consumer", "retention"]


class StreamReset(Shape):
    """The place to go on is not known any more: fetch your snapshots again."""

    reason: Literal["evicted", "epoch"]
    oldest_seq: Count


class StandbyLeader(Shape):
    """The server that leads."""

    instance_id: str
    url: str | None = None


class StreamStandby(Shape):
    """This server does not lead; the stream ends."""

    leader: StandbyLeader | None


class StreamClosing(Shape):
    """The server ends the stream; come back soon."""

    reason: str


class StreamHeartbeat(Shape):
    """Nothing else happened for a while; asked for with `heartbeat=event`."""

    head_seq: Count


_SHAPES: Final[dict[str, type[BaseModel]]] = {
    "stream.closing": StreamClosing,
    "stream.gap": StreamGap,
    "stream.heartbeat": StreamHeartbeat,
    "stream.hello": Hello,
    "stream.reset": StreamReset,
    "stream.standby": StreamStandby,
}


def stream_types() -> list[dict[str, Any]]:
    """Return every type of `stream.*` in the form of the catalogue of event types."""
    return [
        {"type": name, "sample": False, "schema": shape.model_json_schema(by_alias=True)}
        for name, shape in _SHAPES.items()
    ]
