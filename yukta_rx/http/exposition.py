"""The page that Prometheus reads, made a little at a time so that the event loop goes on meanwhile.

The text is the library's own: each piece is encoded by its encoder as a page of one meter with a
few samples, of which head and end are cut off. Feature: OBS-04.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from yukta_rx.metrics import MeterFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.registry import Collector

    Encoder = Callable[[Collector], bytes]

TURN: Final = 0.002
"""Seconds of work after which the event loop gets its turn."""

_AT_ONCE: Final = 4
"""Combinations of label values per piece; a timer has 17 lines for each."""


async def exposition(registry: Collector, accept: str) -> tuple[bytes, str]:
    """Return the page of a registry and its content type, as `choose_encoder` would make it.

    Meters are read in pieces, so two of them need not be of the same moment; the numbers of one
    combination of label values are. A collector that others registered is read in one piece.

    Args:
        registry: what is shown.
        accept: the client's Accept header, empty if it sent none.
    """
    encode, content_type = choose_encoder(accept)
    end = encode(_Page(()))
    pieces: list[bytes] = []
    until = perf_counter() + TURN
    for metric in registry.collect():
        for piece in _pieces(metric, encode, len(end)):
            pieces.append(piece)
            if perf_counter() > until:
                await asyncio.sleep(0)
                until = perf_counter() + TURN
    pieces.append(end)
    return b"".join(pieces), content_type


class _Page:
    """A registry that has just these metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _pieces(metric: Metric, encode: Encoder, end: int) -> Iterator[bytes]:
    if not isinstance(metric, MeterFamily):
        yield _without_end(encode(_Page((metric,))), end)
        return
    piece = Metric(metric.name, metric.documentation, metric.type)
    head = _without_end(encode(_Page((piece,))), end)
    yield head
    parts = metric.parts()
    while some := list(islice(parts, _AT_ONCE)):
        piece.samples = [sample for part in some for sample in part]
        yield _without_end(encode(_Page((piece,))), end)[len(head) :]


def _without_end(page: bytes, end: int) -> bytes:
    return page[: len(page) - end]
