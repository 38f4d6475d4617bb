"""Taps: the edges that somebody looks into, a few at a time on one server. Feature: OBS-01."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from yukta_rx.engine.tap import EdgeTap
from yukta_rx.errors import TooManyStreamsError
from yukta_rx.observe.tap import TapReader
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from yukta_rx.engine.run import Run

MOST: Final = 20
"""Taps that may be open at once."""

RETRY_LATER: Final = 5.0


class Taps:
    """Opens taps and counts those that are open."""

    def __init__(self) -> None:
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def open(
        self,
        run: Run,
        *,
        source: str,
        target: str,
        port: str | None,
        max_per_sec: int,
        max_bytes: int,
    ) -> TapReader:
        """Look into an edge of a live run; close the reader to take the tap off.

        Raises:
            TooManyStreamsError: `MOST` are open.
            NotFoundError: there is no such node or edge.
            BadRequestError: several edges are meant.
        """
        if self._open >= MOST:
            detail = f"{MOST} taps are open, as many as are allowed"
            raise TooManyStreamsError(detail, retry_after=RETRY_LATER)
        tap = EdgeTap(run, source, target, port)
        reader = TapReader(
            tap,
            LoopClock(asyncio.get_running_loop()),
            run.secrets.masker,
            max_per_sec=max_per_sec,
            max_bytes=max_bytes,
            gone=partial(self._gone, run),
        )
        self._open += 1
        run.taps += 1
        return reader

    def _gone(self, run: Run) -> None:
        self._open -= 1
        run.taps -= 1
