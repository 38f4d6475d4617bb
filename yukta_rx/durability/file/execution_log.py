"""The execution log in a file of lines, `executions.jsonl`. Feature: DUR-01."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

from msgspec.structs import replace

from yukta_rx.durability.file._claim_check import ClaimCheck
from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.file._journal_lines import CHUNK
from yukta_rx.durability.file._log_index import Copy, LogIndex, Places
from yukta_rx.durability.file._log_lines import head_of, without_payload
from yukta_rx.durability.file._quarantine import Quarantine
from yukta_rx.durability.stores.execution_log import CHILDREN, LogEntry, LoggedRun
from yukta_rx.errors import BadRequestError, StoreUnavailableError, YuktaError
from yukta_rx.model.execution_log import (
    EVENTS,
    IdempotencyKey,
    LogEvent,
    NodeFinished,
    RunAborted,
    RunFinished,
    RunStarted,
    decode_event,
    encode_event,
)
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

NAME: Final = "executions.jsonl"

STORE: Final = "execution-log"
"""As the owner of blobs."""

AT_ONCE: Final = 200
"""Lines that are read in one turn of the thread, which writes in the next."""


class _Written(NamedTuple):
    seq: int
    event: LogEvent
    size: int
    apart: bool


class _Bad(NamedTuple):
    """A line that cannot be read."""

    line: bytes
    reason: str


class FileExecutionLogStore:
    """See `ExecutionLogStore`; a journal, and an index of where its lines are.

    Each line is an event as `encode_event` writes it, with its `seq` in front. An event counts
    once its line is on disk; what waits at the same time shares one write and one fdatasync. The
    ends of nodes, which only the history shows, are not forced to disk unless `fsync` is set.

    Lines are read when somebody asks for them; memory holds where they are, and the keys that are
    in force. What is kept is what the memory store keeps, at the same moments; then the file is
    rewritten without what has gone. A line that cannot be read is moved to
    `executions.quarantine.jsonl`, when the log is opened or by whoever comes upon it.

    Args:
        folder: where the file is.
        retained: runs that are kept at least.
        compact_after: events after which older runs are dropped.
        fsync: whether the ends of nodes are forced to disk, too.
        meters: where lines are counted that cannot be read.
        blobs: keeps start payloads that are too large for a line; None keeps all in their lines.
        claim_bytes: size from which on a payload is; 0 for none.
        children: runs that others started and that are kept beside those.
    """

    durable = True

    def __init__(
        self,
        folder: Path,
        retained: int,
        compact_after: int,
        *,
        fsync: bool = False,
        meters: Meters | None = None,
        blobs: FileBlobStore | None = None,
        claim_bytes: int = 0,
        children: int = CHILDREN,
    ) -> None:
        self._payloads = ClaimCheck(STORE, blobs, claim_bytes)
        self._index = LogIndex(retained, compact_after, children, meters)
        self._journal = Journal(folder / NAME)
        self._quarantine = Quarantine(self._journal.path, "execution-log", meters)
        self._compact_after = compact_after
        self._fsync = fsync
        self._next = 1
        self._claims: dict[tuple[str, str, str], asyncio.Future[None]] = {}
        """Keys that are being written."""
        self._tasks: Tasks | None = None

    async def start(self) -> None:
        """Open the log and read it.

        Raises:
            StoreUnavailableError: it cannot be read or written; names the file and the reason.
        """
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        reader = _Reader(self._index, self._quarantine)
        await self._journal.open_placed(reader.take)
        try:
            reader.finish()
            await self._quarantine.keep()
            garbage = self._journal.lines - self._index.lines
            if self._quarantine.found or garbage >= self._compact_after:
                await self._put(Copy(self._index, self._journal.size), None)
            await self._payloads.start(self._index.apart)
        except BaseException:
            await self._journal.close()
            raise
        self._next = self._index.newest + 1

    async def close(self) -> None:
        """Write what waits, and close the log."""
        if self._tasks is not None:
            await self._tasks.ended()
        await self._journal.close()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        await self.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read when the log was opened."""
        return self._quarantine.found

    # -- writes

    async def append_start(
        self, started: RunStarted, key: IdempotencyKey | None = None
    ) -> IdempotencyKey | None:
        """Write a start with its key; see the Protocol."""
        body, run = encode_event(started), started.execution_id
        text = self._payloads.text_of(started.payload, len(body))
        if text is None:
            return await self._append_start(started, body, key)
        blob = await self._payloads.put(run, text)
        body = b'{"apart":true,' + encode_event(replace(started, payload=blob))[1:]
        try:
            await self._unclaimed(key)
        except asyncio.CancelledError:
            if self._tasks is not None:
                self._tasks.spawn(self._payloads.forget(run), f"yukta forget start {run}")
            raise
        # Who is cancelled from here on has handed it over, and it is written all the same.
        try:
            known = await self._append_start(started, body, key, apart=True)
        except YuktaError:
            await self._payloads.forget(run)
            raise
        if known is not None:
            await self._payloads.forget(run)
        return known

    async def _unclaimed(self, key: IdempotencyKey | None) -> None:
        """Wait until a key is not being written; at once if it is not."""
        while key is not None and (claim := self._claims.get(key.scope)) is not None:
            await asyncio.wait((claim,))

    async def _append_start(
        self, started: RunStarted, body: bytes, key: IdempotencyKey | None, *, apart: bool = False
    ) -> IdempotencyKey | None:
        if key is None:
            await asyncio.shield(self._write([(started, body, apart)]))
            return None
        await self._unclaimed(key)
        known = self._index.in_force(key.scope, started.time)
        if known is not None:
            self._check()
            return known
        scope = key.scope
        claim = self._write([(started, body, apart), (key, encode_event(key), False)])
        if not claim.done():
            self._claims[scope] = claim
            claim.add_done_callback(lambda _: self._claims.pop(scope, None))
        await asyncio.shield(claim)
        return None

    async def append(self, events: Sequence[LogEvent]) -> None:
        """Write events in one write."""
        await asyncio.shield(self._write([(event, encode_event(event), False) for event in events]))

    def _write(self, events: Sequence[tuple[LogEvent, bytes, bool]]) -> asyncio.Future[None]:
        lines: list[bytes] = []
        written: list[_Written] = []
        for event, body, apart in events:
            line = b'{"seq":%d,' % self._next + body[1:]
            lines.append(line)
            written.append(_Written(self._next, event, len(line), apart))
            self._next += 1

        def told(error: BaseException | None) -> None:
            if error is None and written:
                self._placed(written)
                self._compact()

        forced = self._fsync or not all(isinstance(event, NodeFinished) for event, _, _ in events)
        return self._journal.append(lines, told, sync=forced)

    def _placed(self, written: Sequence[_Written]) -> None:
        """Lines are on disk, the last in the file."""
        # Each but the last has a blank before its newline byte.
        start = self._journal.size - sum(one.size + 2 for one in written) + 1
        index = self._index
        for seq, event, size, apart in written:
            name = event.execution_id
            kept = index.put(seq, event.TYPE, name, start, size)
            start += size + 2
            if isinstance(event, RunStarted):
                kept.parent = event.parent_execution_id
                if apart:
                    index.apart.add(name)
            elif isinstance(event, IdempotencyKey):
                index.remember(event)
        index.grown(len(written), written[-1].event.time)

    def _compact(self) -> None:
        """Rewrite the file if something was dropped, unless that is under way."""
        if self._index.dropped and self._tasks is not None and not self._tasks:
            self._index.dropped = False
            gone, self._index.gone = self._index.gone, []
            # As it is now, with the place in the file that it stands for.
            work = self._rewrite(Copy(self._index, self._journal.size), gone)
            self._tasks.spawn(work, "yukta compacts the execution log")

    async def _rewrite(self, copy: Copy, gone: Sequence[str]) -> None:
        try:
            await self._put(copy, copy.size)
        except StoreUnavailableError as error:
            # The file is as it was, and holds more than it has to; the next time it is tried again.
            log.error("the execution log could not be made shorter: %s", error)
            self._index.gone += gone
            return
        for run in gone:
            await self._payloads.forget(run)

    async def _put(self, copy: Copy, since: int | None) -> None:
        """Put a file with what is kept in the place of the file."""
        read = partial(self._journal.lines_at, ahead=CHUNK)
        await self._journal.rewrite(copy.lines(read), since, lambda: self._index.moved(copy))

    # -- reads

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Entries behind a place."""
        self._check()
        found: list[LogEntry] = []
        while len(found) < limit:
            seqs = self._index.behind(stream, after, limit - len(found))
            if not seqs:
                break
            events = await self._events([(stream, seq) for seq in seqs])
            found += [LogEntry(seq, events[seq]) for seq in seqs if seq in events]
            after = seqs[-1]
        return found

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload."""
        self._check()
        kept = self._index.streams.get(execution_id)
        if kept is None or not kept.start:
            return None
        seq = kept.start
        started = (await self._events([(execution_id, seq)])).get(seq)
        if not isinstance(started, RunStarted) or execution_id not in self._index.apart:
            return started if isinstance(started, RunStarted) else None
        what = f"the start payload of run {execution_id}"
        try:
            payload = await self._payloads.opened(started.payload, what)
        except StoreUnavailableError:
            if execution_id in self._index.apart:
                raise
            # It was dropped meanwhile.
            return None
        return replace(started, payload=payload)

    async def runs(self) -> Sequence[LoggedRun]:
        """Every run, in the order of their newest entries, without start payloads."""
        self._check()
        # As it is now: it goes on while lines are read.
        about = sorted(
            (kept.seqs[-1], name, kept.start, kept.end, kept.resumed)
            for name, kept in self._index.streams.items()
            if kept.start
        )
        wanted = [(name, seq) for _, name, *both in about for seq in both[:2] if seq]
        events = await self._events(wanted, bare=True)
        return [
            LoggedRun(
                started=started,
                ended=cast("RunFinished | RunAborted | None", events.get(end)),
                resumed=resumed,
                last_seq=last_seq,
            )
            for last_seq, _, start, end, resumed in about
            if isinstance(started := events.get(start), RunStarted)
        ]

    async def unfinished(self) -> Sequence[RunStarted]:
        """The starts of runs without an end, without their payloads."""
        self._check()
        wanted = [
            (name, kept.start) for name, kept in self._index.streams.items() if kept.unfinished
        ]
        events = await self._events(wanted, bare=True)
        found = (events.get(seq) for _, seq in wanted)
        return [started for started in found if isinstance(started, RunStarted)]

    async def idempotency_keys(self, now: datetime) -> Sequence[IdempotencyKey]:
        """The keys that have not expired."""
        self._check()
        return [key for key in self._index.keys.values() if now < key.expires_at]

    async def _events(
        self, wanted: Sequence[tuple[str, int]], *, bare: bool = False
    ) -> dict[int, LogEvent]:
        """Events by their `seq`; without those that were dropped meanwhile or cannot be read.

        Args:
            wanted: stream and `seq` of each.
            bare: leave start payloads out.
        """
        found: dict[int, LogEvent] = {}
        names = {seq: name for name, seq in wanted}
        left = sorted(names)
        while left:
            part = left[:AT_ONCE]
            places = self._index.places
            part = [seq for seq in part if seq in places]
            try:
                read = await self._journal.call(partial(self._decoded, places, part, bare))
            except StoreUnavailableError:
                if places is self._index.places:
                    raise
            if places is not self._index.places:
                # The file was rewritten meanwhile, and they are elsewhere.
                continue
            bad = {seq: one for seq, one in read.items() if isinstance(one, _Bad)}
            found |= {seq: one for seq, one in read.items() if not isinstance(one, _Bad)}
            for seq, one in bad.items():
                self._quarantine.add(f"seq {seq}", one.line, one.reason)
                self._index.lose(names[seq], seq)
            if bad:
                await self._quarantine.keep()
            del left[:AT_ONCE]
        return found

    def _decoded(
        self, places: Places, seqs: Sequence[int], bare: bool
    ) -> dict[int, LogEvent | _Bad]:
        """Read and decode lines; in the thread."""
        found: dict[int, LogEvent | _Bad] = {}
        for seq, line in zip(seqs, self._journal.lines_at(places.spans(seqs)), strict=True):
            try:
                found[seq] = decode_event(without_payload(line) if bare else line)
            except BadRequestError as error:
                found[seq] = _Bad(line, error.detail)
        return found

    def _check(self) -> None:
        if not self._journal.opened:
            raise StoreUnavailableError(f"{self._journal.path}: is not open")


class _Reader:
    """Takes the lines of the file in; runs in the journal's thread."""

    def __init__(self, index: LogIndex, quarantine: Quarantine) -> None:
        self._index = index
        self._quarantine = quarantine
        self._number = 0
        self._keys: Counter[str] = Counter()
        """Lines of each stream that are keys."""

    def take(self, line: bytes, start: int) -> None:
        """Take one line, which begins at that byte."""
        self._number += 1
        try:
            head = head_of(line)
            if head.type not in EVENTS:
                raise BadRequestError(f"there is no event {head.type!r}", code="malformed_json")
            if head.type == IdempotencyKey.TYPE or not head.whole:
                event = decode_event(line)
        except BadRequestError as error:
            self._quarantine.add(f"line {self._number}", line, error.detail)
            return
        index = self._index
        # A line without a place, or with one that was given before, comes behind the others.
        seq = max(index.newest + 1, head.seq)
        kept = index.put(seq, head.type, head.stream, start, len(line))
        if head.type == RunStarted.TYPE:
            kept.parent = head.parent
            if head.apart:
                index.apart.add(head.stream)
        elif head.type == IdempotencyKey.TYPE and isinstance(event, IdempotencyKey):
            index.remember(event)
            self._keys[head.stream] += 1
        index.grown(1, head.time)

    def finish(self) -> None:
        """All lines were taken."""
        streams = self._index.streams
        for name, count in self._keys.items():
            # All that is left of such a run is its key, which is known by now.
            if name in streams and len(streams[name].seqs) == count:
                del streams[name]
        self._index.dropped = False
        # What is kept for them goes as what a crash left behind.
        self._index.gone.clear()
