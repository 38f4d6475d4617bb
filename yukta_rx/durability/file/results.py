"""Results of runs in files, shared by all runs; memory holds where they are. Feature: OBS-03."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from yukta_rx.durability.file._claim_check import ClaimCheck
from yukta_rx.durability.file._result_places import Places
from yukta_rx.durability.file._segmented_log import SEGMENT, MovedError, SegmentedLog
from yukta_rx.durability.stores.families import CrowdedOut
from yukta_rx.durability.stores.results import (
    StoredResults,
    all_written,
    part_written,
    results_to_drop,
)
from yukta_rx.errors import BadRequestError, StoreUnavailableError
from yukta_rx.model import codec
from yukta_rx.model.result_lines import claim_in, decode_result, encode_result
from yukta_rx.model.times import exact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.results import ResultPart
    from yukta_rx.metrics import Meters
    from yukta_rx.model.results import ResultEvent

log = logging.getLogger(__name__)

STORE: Final = "results"
"""As the owner of blobs."""

PART: Final = 1000
"""Cursors whose blobs go together, as the run is cut."""


class _Line(msgspec.Struct):
    """A line: a result of a run, its end, up to where it was cut, or the runs that were removed."""

    run: str = ""
    cursor: int = 0
    apart: bool = False
    """The payload is a blob."""
    result: msgspec.Raw = msgspec.Raw()
    ended: datetime | None = None
    parent: str | None = None
    """Beside the end: the run that started it."""
    cut: int = 0
    trimmed: tuple[str, ...] = ()

    @property
    def mark(self) -> bool:
        """Whether it says that other lines are not needed any more."""
        return bool(self.trimmed or self.cut)


class _Run:
    """What is known of a run without looking into files."""

    __slots__ = ("cut", "end", "ended_at", "last", "parent", "parts", "places", "turn")

    def __init__(self) -> None:
        self.last = 0
        self.cut = 0
        """The cursor up to which nothing is kept any more."""
        self.parts: set[int] = set()
        """Parts of which payloads are kept apart."""
        self.places = Places()
        self.ended_at: datetime | None = None
        self.parent: str | None = None
        self.end: tuple[int, int] | None = None
        """Segment and bytes of the line that says so."""
        self.turn: asyncio.Lock | None = asyncio.Lock()

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Segment and bytes of everything that is written of it."""
        for segment, start, end, _, _ in self.places:
            yield segment, end - start
        if self.end is not None:
            yield self.end


class FileResultStore:
    """See `ResultStore`. Survives the process; use it as an async context.

    Args:
        path: its folder, which is this store's alone.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        segment: bytes of one file.
        blobs: keeps payloads that are too large for a line; None keeps every one in its line.
        claim_bytes: size from which on a payload is; 0 for none.
        meters: where children are counted that went for their number.
    """

    durable = True

    def __init__(
        self,
        path: Path,
        offload: Callable[..., Awaitable[Any]],
        *,
        segment: int = SEGMENT,
        blobs: FileBlobStore | None = None,
        claim_bytes: int = 0,
        meters: Meters | None = None,
    ) -> None:
        self._crowded_out = CrowdedOut(STORE, meters)
        self._log = SegmentedLog(path, offload, limit=segment)
        self._claims = ClaimCheck(STORE, blobs, claim_bytes)
        self._runs: dict[str, _Run] = {}
        self._alive: dict[int, int] = {}
        """Bytes of each segment that are of runs which are kept."""
        self._marks: dict[int, int] = {}
        """Bytes of each segment that say which runs were removed."""
        self._tidying = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Learn what there is.

        Raises:
            StoreUnavailableError: a file cannot be read or written; names it.
        """
        try:
            await self._log.open(self._found)
            await self._claims.start(
                [_owner(name, part) for name, run in self._runs.items() for part in run.parts]
            )
        except BaseException:
            await self._log.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Write what waits."""
        await self._log.close()

    # -- the store

    async def append(self, execution_id: str, results: Sequence[ResultEvent]) -> None:
        """Write results in one write."""
        await self._write(execution_id, results, None)

    async def end(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: datetime,
        parent: str | None = None,
    ) -> None:
        """Write the last results and close the run, in one write."""
        await self._write(execution_id, results, ended_at, parent)

    async def write(self, parts: Sequence[ResultPart]) -> None:
        """Write results of several runs."""
        await all_written([part_written(self, part) for part in parts])

    async def read(
        self, execution_id: str, after: int = 0, limit: int = 100
    ) -> StoredResults | None:
        """Results behind a place."""
        while (run := self._kept(execution_id)) is not None:
            found: list[ResultEvent] = []
            ended, cut = run.ended_at is not None, run.cut
            behind = max(after, cut)
            try:
                index = run.places.behind(behind)
                while index < len(run.places) and len(found) < limit:
                    segment, start, end, _, last = run.places[index]
                    for line in await self._log.read(segment, start, end):
                        read = _read(line)
                        if behind < read.cursor and len(found) < limit:
                            found.append(await self._opened(read))
                    # By now places before this one may have gone.
                    index = run.places.behind(last)
            except MovedError:
                # Runs were removed meanwhile, maybe this one, or its oldest results.
                continue
            except StoreUnavailableError:
                if self._runs.get(execution_id) is run and run.cut == cut:
                    raise
                continue
            return StoredResults(tuple(found), ended)
        return None

    async def _opened(self, line: _Line) -> ResultEvent:
        try:
            result = decode_result(bytes(line.result))
        except BadRequestError as error:
            told = f"result {line.cursor} of run {line.run} cannot be read: {error.detail}"
            raise StoreUnavailableError(told, store=STORE) from error
        if line.apart and result.message is not None:
            what = f"the payload of result {line.cursor} of run {line.run}"
            payload = await self._claims.opened(result.message.payload, what)
            result = _with_payload(result, payload)
        return result

    async def last(self, execution_id: str) -> int | None:
        """The cursor of the newest result of a run."""
        run = self._kept(execution_id)
        return None if run is None else run.last

    def _kept(self, execution_id: str) -> _Run | None:
        run = self._runs.get(execution_id)
        # Its first write may have failed.
        return None if run is None or (not run.places and run.end is None) else run

    async def cut(self, execution_id: str, upto: int) -> int:
        """Remove the oldest results of a run, and the files that nothing is left in."""
        run = self._kept(execution_id)
        if run is None:
            return 0
        _, gone = run.places.whole(min(upto, run.last - 1))
        if gone <= run.cut:
            return run.cut
        line = codec.encode({"run": execution_id, "cut": gone})

        def placed(segment: int, starts: Sequence[int], end: int) -> None:
            self._cut_at(self._runs.get(execution_id), gone, segment, end - starts[0])

        await self._log.append([line], placed)
        for part in sorted(run.parts):
            if PART * (part + 1) > gone + 1:
                break
            run.parts.discard(part)
            await self._claims.forget(_owner(execution_id, part))
        async with self._tidying:
            await self._tidy()
        return run.cut

    async def trim(
        self, retained: int, ended_before: datetime | None = None, children: int = 0
    ) -> Sequence[str]:
        """Remove what is no longer kept, and the files that nothing is left in."""
        ended = [
            (execution_id, run.ended_at, run.parent)
            for execution_id, run in self._runs.items()
            if run.ended_at is not None
        ]
        dropped, crowded = results_to_drop(ended, retained, ended_before, children)
        apart = [_owner(name, part) for name in dropped for part in self._runs[name].parts]
        if dropped:
            line = codec.encode({"trimmed": dropped})
            await self._log.append(
                [line],
                lambda segment, starts, end: self._trimmed(segment, end - starts[0], dropped),
            )
        self._crowded_out.add(crowded)
        for owner in apart:
            await self._claims.forget(owner)
        async with self._tidying:
            await self._tidy()
        return dropped

    # -- writing

    async def _write(
        self,
        execution_id: str,
        results: Sequence[ResultEvent],
        ended_at: datetime | None,
        parent: str | None = None,
    ) -> None:
        # All are made before any is written.
        name = codec.encode(execution_id)
        made = [(result, encode_result(result)) for result in results]
        texts = [self._text_of(result, line) for result, line in made]
        run = self._runs.get(execution_id)
        if run is None:
            run = self._runs[execution_id] = _Run()
        if run.turn is None:
            return
        async with run.turn:
            if run.ended_at is not None:
                return
            lines: list[tuple[int, bytes]] = []
            for (result, line), text in zip(made, texts, strict=True):
                apart = b""
                if (claim := claim_in(result)) is not None:
                    part, apart = result.cursor // PART, b'"apart":true,'
                    run.parts.add(part)
                    await self._claims.refer(_owner(execution_id, part), claim)
                elif text is not None:
                    part, apart = result.cursor // PART, b'"apart":true,'
                    run.parts.add(part)
                    blob = await self._claims.put(_owner(execution_id, part), text)
                    line = encode_result(_with_payload(result, blob))
                head = b'{"run":%b,"cursor":%d,%b' % (name, result.cursor, apart)
                lines.append((result.cursor, b'%b"result":%b}' % (head, line)))
            await self._write_lines(execution_id, run, lines, ended_at, parent)

    def _text_of(self, result: ResultEvent, line: bytes) -> bytes | None:
        if result.message is None or claim_in(result) is not None:
            return None
        return self._claims.text_of(result.message.payload, len(line))

    async def _write_lines(
        self,
        execution_id: str,
        run: _Run,
        made: list[tuple[int, bytes]],
        ended_at: datetime | None,
        parent: str | None,
    ) -> None:
        cursors, lines, last = [], [], run.last
        for cursor, line in made:
            if cursor > last:
                cursors.append(cursor)
                lines.append(line)
                last = cursor
        if ended_at is not None:
            when = exact(ended_at)
            whose = {} if parent is None else {"parent": parent}
            lines.append(codec.encode({"run": execution_id, "ended": when, **whose}))

        def placed(segment: int, starts: Sequence[int], end: int) -> None:
            ends = [*starts[1:], end]
            for cursor, start, stop in zip(cursors, starts, ends, strict=False):
                self._result_at(run, cursor, segment, start, stop)
            if ended_at is not None:
                self._end_at(run, ended_at, parent, segment, ends[-1] - starts[-1])

        if lines:
            await self._log.append(lines, placed)

    def _result_at(self, run: _Run, cursor: int, segment: int, start: int, end: int) -> None:
        if cursor <= run.last:
            # Written twice, by a caller that did not wait for the first time.
            return
        run.places.add(segment, start, end, cursor)
        run.last = cursor
        self._alive[segment] = self._alive.get(segment, 0) + end - start

    def _end_at(
        self, run: _Run, ended_at: datetime, parent: str | None, segment: int, size: int
    ) -> None:
        if run.ended_at is not None:
            return
        run.ended_at, run.end, run.turn = ended_at, (segment, size), None
        run.parent = parent
        self._alive[segment] = self._alive.get(segment, 0) + size

    def _cut_at(self, run: _Run | None, upto: int, segment: int, size: int) -> None:
        self._marks[segment] = self._marks.get(segment, 0) + size
        if run is not None and upto > run.cut:
            run.cut = upto
            for number, used in run.places.drop(run.places.whole(upto)[0]):
                self._alive[number] -= used

    def _trimmed(self, segment: int, size: int, dropped: Sequence[str]) -> None:
        self._marks[segment] = self._marks.get(segment, 0) + size
        for execution_id in dropped:
            run = self._runs.pop(execution_id, None)
            for number, used in () if run is None else run.sizes():
                self._alive[number] -= used

    # -- reading what is there; in a thread, before anything else

    def _found(self, segment: int, start: int, end: int, line: bytes) -> None:
        read = _read(line)
        if not read.run and not read.trimmed:
            told = "%s: the line of segment %d at byte %d is no result and is passed over"
            log.warning(told, self._log.path, segment, start)
            return
        if read.trimmed:
            self._trimmed(segment, end - start, read.trimmed)
            return
        run = self._runs.get(read.run)
        if read.cut:
            self._cut_at(run, read.cut, segment, end - start)
            if run is not None:
                run.parts = {part for part in run.parts if PART * (part + 1) > read.cut + 1}
            return
        if run is None:
            run = self._runs[read.run] = _Run()
        if read.ended is not None:
            self._end_at(run, read.ended, read.parent, segment, end - start)
        else:
            if read.apart:
                run.parts.add(read.cursor // PART)
            self._result_at(run, read.cursor, segment, start, end)

    # -- letting go

    async def _tidy(self) -> None:
        """Remove files of which nothing is left, and what is dead from those that are half so."""
        for number in tuple(self._log.sizes):
            if number == self._log.newest:
                return
            # What was removed is of interest as long as older files may still hold it.
            marks = 0 if number == self._log.oldest else self._marks.get(number, 0)
            used = self._alive.get(number, 0) + marks
            if not used:
                self._alive.pop(number, None)
                self._marks.pop(number, None)
                await self._log.drop(number)
            elif 2 * used < self._log.sizes[number]:
                await self._log.rewrite(
                    number, self._wanted(marks > 0), partial(self._moved, number)
                )

    def _wanted(self, marks: bool) -> Callable[[bytes], bool]:
        cuts = {name: run.cut for name, run in self._runs.items()}

        def wanted(line: bytes) -> bool:
            read = _read(line)
            if read.mark:
                return marks
            cut = cuts.get(read.run)
            return cut is not None and (read.ended is not None or read.cursor > cut)

        return wanted

    def _moved(self, number: int, lines: list[tuple[int, int, bytes]]) -> None:
        places: dict[str, Places] = {}
        self._alive[number] = self._marks[number] = 0
        for start, end, line in lines:
            read = _read(line)
            if read.mark:
                self._marks[number] += end - start
                continue
            run = self._runs.get(read.run)
            if run is None or (read.ended is None and read.cursor <= run.cut):
                continue
            self._alive[number] += end - start
            if read.ended is not None:
                run.end = (number, end - start)
            else:
                places.setdefault(read.run, Places()).add(number, start, end, read.cursor)
        for execution_id, moved in places.items():
            self._runs[execution_id].places.move(number, moved)


def _owner(execution_id: str, part: int) -> str:
    """Under which name blobs of a part of a run are kept."""
    return f"{execution_id}.{part}" if part else execution_id


def _with_payload(result: ResultEvent, payload: Any) -> ResultEvent:
    """A result with another payload, or what stands for it."""
    assert result.message is not None
    message = msgspec.structs.replace(result.message, uid=result.message.id, payload=payload)
    return msgspec.structs.replace(result, message=message)


def _read(line: bytes) -> _Line:
    """What a line says; nothing at all of one that is broken."""
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError:
        return _Line()
