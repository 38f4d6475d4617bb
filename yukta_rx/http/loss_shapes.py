"""The shape of the loss ledger. Feature: OBS-01."""

from __future__ import annotations

from typing import Literal

from yukta_rx.http.shapes import Count, Shape


class Loss(Shape):
    """What was lost at one place, of one node or of the run as a whole, for one reason.

    At `edge` messages: DROP_OLDEST and DROP_NEWEST by a buffer, DROP_HELD by an operator, UNROUTED
    for want of an edge that takes them, DISCARDED with the node that they waited for. `results`,
    `log` and `events` lost items that came `late`, lines for which there was no room (`overflow`),
    and what retention took (`retention`, or `expired` with all the rest). `recording` counts
    outputs of nodes, `history` rows of the execution log. `sample` has ids of messages, the first.
    """

    place: Literal["edge", "results", "log", "events", "recording", "history"]
    node_id: str | None = None
    reason: str
    count: Count
    sample: list[str]


class Losses(Shape):
    """The loss ledger of a run; `lossless` if it is empty."""

    lossless: bool
    items: list[Loss]
