"""Events of all runs in files; memory holds one place in 64 of them. Feature: OBS-01.

Every file begins with what one has to know of the files before it, so that only the newest is read
when the store is opened.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_right
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from yukta_rx.durability.file._segmented_log import MovedError, SegmentedLog
from yukta_rx.durability.stores.events import Epoch, EventSpan, StoredEvent, known_epochs
from yukta_rx.errors import BadRequestError
from yukta_rx.model import codec
from yukta_rx.model.event_lines import decode_event, encode_event
from yukta_rx.model.times import exact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from yukta_rx.metrics import Meters
    from yukta_rx.model.events import ExecutionEvent

log = logging.getLogger(__name__)

SEGMENT: Final = 4 << 20
"""Bytes of one file: what goes at once when the oldest go."""

EVERY: Final = 64
"""Events between two places that are known without reading."""


class _Line(msgspec.Struct):
    """A line: an event, or what came before the lines behind it."""

    seq: int = 0
    event: msgspec.Raw = msgspec.Raw()
    epochs: tuple[Epoch, ...] | None = None
    newest: int = 0
    time: datetime | None = None


class _Index:
    """Places in one file: the numbers of some events, and where they begin."""

    __slots__ = ("_count", "begins", "seqs")

    def __init__(self) -> None:
        self.seqs = array("q")
        self.begins = array("q")
        self._count = 0

    def add(self, seq: int, begin: int) -> None:
        """The next event of the file."""
        if self._count % EVERY == 0:
            self.seqs.append(seq)
            self.begins.append(begin)
        self._count += 1

    def part(self, after: int, limit: int, size: int) -> tuple[int, int]:
        """Between which places the oldest events behind a number are, at most `limit`."""
        first = max(0, bisect_right(self.seqs, after) - 1)
        # One more for the events before the place, and one for those that fill it up.
        end = first + limit // EVERY + 2
        begin = self.begins[first] if self.begins else size
        return begin, self.begins[end] if end < len(self.begins) else size


class FileEventStore:
    """See `EventStore`. Survives the process; use it as an async context.

    Args:
        path: its folder, which is this store's alone.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        segment: bytes of one file.
        meters: where events are counted that cannot be read; a reader finds their numbers missing.
    """

    durable = True

    def __init__(
        self,
        path: Path,
        offload: Callable[..., Awaitable[Any]],
        *,
        segment: int = SEGMENT,
        meters: Meters | None = None,
    ) -> None:
        self._log = SegmentedLog(path, offload, limit=segment, head=self._begun)
        self._epochs: tuple[Epoch, ...] = ()
        self._newest = 0
        self._time: datetime | None = None
        self._latest: bytes | None = None
        """While what is there is read: the newest event."""
        self._parts: dict[int, tuple[int, datetime | None]] = {}
        """Of each file: number and time of the newest event before it."""
        self._index: dict[int, _Index] = {}
        self._turn = asyncio.Lock()
        self._broken: set[int] = set()
        """Numbers of events that could not be read."""
        self._count = None
        if meters is not None:
            self._count = meters.counter("yukta.store.quarantined", store="events")

    async def __aenter__(self) -> Self:
        """Learn what there is.

        Raises:
            StoreUnavailableError: a file cannot be read or written; names it.
        """
        try:
            await self._log.open(self._found, self._found)
            numbers = list(self._log.sizes)
            newest = numbers.pop()
            if numbers and newest not in self._parts:
                # A crash came between the making of this file and its first line.
                for start, end, line in await self._log.lines(numbers[-1]):
                    self._found(numbers[-1], start, end, line)
                self._parts[newest] = (self._newest, self._time)
            self._index = {newest: self._index.get(newest, _Index())}
            if self._latest is not None:
                newest_event = self._event(newest, self._newest, self._latest)
                self._time = self._time if newest_event is None else newest_event.time
        except BaseException:
            await self._log.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits."""
        await self._log.close()

    def _found(self, number: int, start: int, _end: int, line: bytes) -> None:
        read = _read(line)
        if read.epochs is not None:
            self._epochs, self._newest = read.epochs, max(self._newest, read.newest)
            self._time = read.time
            self._parts.setdefault(number, (self._newest, self._time))
        elif read.seq > self._newest:
            self._parts.setdefault(number, (read.seq - 1, None))
            self._event_at(number, start, read.seq, None)
            self._latest = bytes(read.event)
        elif not read.seq:
            told = "%s: the line of segment %d at byte %d is no event and is passed over"
            log.warning(told, self._log.path, number, start)

    # -- the store

    async def begin(self, epoch: str) -> EventSpan:
        """Begin an epoch."""
        async with self._turn:
            if any(known.name == epoch for known in self._epochs):
                raise ValueError(f"epoch {epoch} has begun before")
            epochs = (*self._epochs, Epoch(epoch, self._newest))

            def placed(number: int, _starts: Sequence[int], _end: int) -> None:
                self._epochs = epochs
                self._parts.setdefault(number, (self._newest, self._time))

            await self._log.append([self._head(epochs)], placed)
        return await self.span()

    async def append(self, events: Sequence[StoredEvent]) -> None:
        """Write events in one write."""
        # All are made before any is written.
        made = [
            (seq, event.time, b'{"seq":%d,"event":%b}' % (seq, encode_event(event)))
            for seq, event in events
        ]
        async with self._turn:
            lines, chosen, newest = [], [], self._newest
            for seq, time, line in made:
                if seq > newest:
                    lines.append(line)
                    chosen.append((seq, time))
                    newest = seq

            def placed(number: int, starts: Sequence[int], _end: int) -> None:
                self._parts.setdefault(number, (self._newest, self._time))
                for (seq, time), start in zip(chosen, starts, strict=True):
                    self._event_at(number, start, seq, time)

            if lines:
                await self._log.append(lines, placed)

    async def span(self) -> EventSpan:
        """What is there."""
        return EventSpan(self._oldest(), self._newest, self._epochs)

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        """The oldest events behind a number."""
        found: list[StoredEvent] = []
        while len(found) < limit:
            number = self._holds(after)
            if number is None:
                break
            end = self._end_of(number)
            try:
                lines, rest = await self._part(number, after, limit - len(found))
            except MovedError:
                # The oldest were removed meanwhile.
                continue
            for line in lines:
                read = _read(line)
                if read.seq > after and len(found) < limit:
                    after = read.seq
                    event = self._event(number, after, bytes(read.event))
                    if event is not None:
                        found.append(StoredEvent(after, event))
            if rest and len(found) < limit:
                # Numbers up to the end of this file are missing, if there are any.
                after = max(after, end)
        return found

    async def trim(self, retained: int, before: datetime | None = None) -> int:
        """Remove the oldest files of which nothing is kept any longer."""
        async with self._turn:
            while (number := self._log.oldest) != self._log.newest:
                after = self._next(number)
                (behind, _), (end, time) = self._parts[number], self._parts[after]
                old = before is not None and time is not None and time < before
                if end > self._newest - retained and not old and end > behind:
                    break
                await self._log.drop(number)
                self._parts.pop(number, None)
                self._index.pop(number, None)
            self._epochs = known_epochs(self._epochs, self._oldest())
        return self._oldest()

    # -- inside

    def _event(self, number: int, seq: int, line: bytes) -> ExecutionEvent | None:
        """The event of a line; None of one that is damaged, which is said and counted once."""
        try:
            return decode_event(line)
        except BadRequestError as error:
            if seq not in self._broken:
                self._broken.add(seq)
                if self._count is not None:
                    self._count.add(1)
                told = "%s: event %d in segment %d cannot be read and is passed over: %s"
                log.error(told, self._log.path, seq, number, error)
            return None

    def _begun(self) -> list[bytes]:
        """The next file begins."""
        number = self._log.newest + 1
        self._parts[number] = (self._newest, self._time)
        self._index[number] = _Index()
        return [self._head()]

    def _head(self, epochs: tuple[Epoch, ...] | None = None) -> bytes:
        """The line that a file begins with."""
        time = {} if self._time is None else {"time": exact(self._time)}
        known = self._epochs if epochs is None else epochs
        shown = [list(epoch) for epoch in known]
        return codec.encode({"epochs": shown, "newest": self._newest, **time})

    def _event_at(self, number: int, start: int, seq: int, time: datetime | None) -> None:
        if seq <= self._newest:
            # Written twice, by a caller that did not wait for the first time.
            return
        index = self._index.get(number)
        if index is None:
            index = self._index[number] = _Index()
        index.add(seq, start)
        self._newest, self._time = seq, time or self._time

    def _oldest(self) -> int:
        behind, _ = self._parts.get(self._log.oldest, (self._newest, None))
        return behind + 1

    def _next(self, number: int) -> int:
        return min(other for other in self._log.sizes if other > number)

    def _end_of(self, number: int) -> int:
        """The number of the last event in a file."""
        return self._newest if number == self._log.newest else self._parts[self._next(number)][0]

    def _holds(self, after: int) -> int | None:
        """The file with the first event behind a number."""
        for number in self._log.sizes:
            if self._end_of(number) > after:
                return number
        return None

    async def _part(self, number: int, after: int, limit: int) -> tuple[list[bytes], bool]:
        """Lines with the events behind a number, and whether they are the last of the file."""
        index = self._index.get(number)
        if index is None:
            index = _Index()
            seen = 0
            for start, _, line in await self._log.lines(number):
                seq = _read(line).seq
                if seq > seen:
                    index.add(seq, start)
                    seen = seq
            self._index[number] = index
        size = self._log.sizes.get(number, 0)
        begin, end = index.part(after, limit, size)
        return await self._log.read(number, begin, end), end == size


def _read(line: bytes) -> _Line:
    """What a line says; nothing at all of one that is broken."""
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError:
        return _Line()
