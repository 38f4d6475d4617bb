"""The execution log in a file of lines, `executions.jsonl`. Feature: DUR-01."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from yukta_rx.durability.file._claim_check import ClaimCheck
from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.file._quarantine import Quarantine
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.durability.stores.execution_log import CHILDREN, parent_of
from yukta_rx.errors import BadRequestError, StoreUnavailableError, YuktaError
from yukta_rx.model import codec
from yukta_rx.model.execution_log import (
    EVENTS,
    IdempotencyKey,
    LogEvent,
    NodeFinished,
    RunStarted,
    decode_event,
    encode_event,
)
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.execution_log import LogEntry, LoggedRun
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

NAME: Final = "executions.jsonl"

STORE: Final = "execution-log"
"""As the owner of blobs."""


class _Head(msgspec.Struct, gc=False):
    """What has to be known of a line to keep it; the rest is read when it is asked for."""

    type: str
    stream: str = msgspec.field(name="executionId")
    time: datetime
    seq: int = 0
    apart: bool = False
    """The payload is a blob."""
    parent: str | None = msgspec.field(name="parentExecutionId", default=None)
    """The run that started it."""


class _Written(NamedTuple):
    seq: int
    event: LogEvent
    line: bytes
    apart: bool


_head = msgspec.json.Decoder(_Head).decode


class FileExecutionLogStore:
    """See `ExecutionLogStore`; the memory store over a journal.

    Each line is an event as `encode_event` writes it, with its `seq` in front. An event counts
    once its line is on disk; what waits at the same time shares one write and one fdatasync. The
    ends of nodes, which only the history shows, are not forced to disk unless `fsync` is set.

    What is kept is what the memory store keeps, at the same moments; then the file is rewritten
    without what has gone. A line that cannot be read is moved to `executions.quarantine.jsonl`.

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
        self._state = _State(retained, compact_after, children, meters)
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
        reader = _Reader(self._state, self._quarantine)
        await self._journal.open_with(reader.take)
        try:
            await self._journal.call(reader.finish)
            await self._quarantine.keep()
            garbage = self._journal.lines - self._state.lines
            if self._quarantine.found or garbage >= self._compact_after:
                await self._journal.rewrite(self._state.snapshot())
            await self._payloads.start(self._state.apart)
        except BaseException:
            await self._journal.close()
            raise
        self._next = self._state.newest + 1

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
            known = await self._append_start(started, body, key, apart=True)
        except YuktaError:
            await self._payloads.forget(run)
            raise
        if known is not None:
            await self._payloads.forget(run)
        return known

    async def _append_start(
        self, started: RunStarted, body: bytes, key: IdempotencyKey | None, *, apart: bool = False
    ) -> IdempotencyKey | None:
        if key is None:
            await asyncio.shield(self._write([(started, body, apart)]))
            return None
        while (claim := self._claims.get(key.scope)) is not None:
            await asyncio.wait((claim,))
        known = self._state.in_force(key.scope, started.time)
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
        written = [
            _Written(seq, event, b'{"seq":%d,' % seq + body[1:], apart)
            for seq, (event, body, apart) in enumerate(events, self._next)
        ]
        self._next += len(written)

        def told(error: BaseException | None) -> None:
            if error is None and written:
                self._state.put(written)
                self._compact()

        forced = self._fsync or not all(isinstance(one.event, NodeFinished) for one in written)
        return self._journal.append([one.line for one in written], told, sync=forced)

    def _compact(self) -> None:
        """Rewrite the file if something was dropped, unless that is under way."""
        if self._state.dropped and self._tasks is not None and not self._tasks:
            self._state.dropped = False
            # As they stand now, with the place in the file that they stand for.
            lines, since = self._state.snapshot(), self._journal.size
            gone, self._state.gone = self._state.gone, []
            work = self._rewrite(lines, since, gone)
            self._tasks.spawn(work, "yukta compacts the execution log")

    async def _rewrite(self, lines: Iterator[bytes], since: int, gone: Sequence[str]) -> None:
        try:
            await self._journal.rewrite(lines, since)
        except StoreUnavailableError as error:
            # The file is as it was, and holds more than it has to; the next time it is tried again.
            log.error("the execution log could not be made shorter: %s", error)
            self._state.gone += gone
            return
        for run in gone:
            await self._payloads.forget(run)

    # -- reads

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Entries behind a place."""
        self._check()
        return await self._state.read(stream, after, limit)

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload."""
        self._check()
        started = await self._state.start_of(execution_id)
        if started is None or execution_id not in self._state.apart:
            return started
        what = f"the start payload of run {execution_id}"
        try:
            payload = await self._payloads.opened(started.payload, what)
        except StoreUnavailableError:
            if execution_id in self._state.apart:
                raise
            # It was dropped meanwhile.
            return None
        return replace(started, payload=payload)

    async def runs(self) -> Sequence[LoggedRun]:
        """Every run, in the order of their newest entries."""
        self._check()
        return await self._state.runs()

    async def unfinished(self) -> Sequence[RunStarted]:
        """The starts of runs without an end."""
        self._check()
        return await self._state.unfinished()

    async def idempotency_keys(self, now: datetime) -> Sequence[IdempotencyKey]:
        """The keys that have not expired."""
        self._check()
        return await self._state.idempotency_keys(now)

    def _check(self) -> None:
        if not self._journal.opened:
            raise StoreUnavailableError(f"{self._journal.path}: is not open")


class _State(MemoryExecutionLogStore):
    """What the file says, and the lines that it takes to say it again."""

    def __init__(
        self, retained: int, compact_after: int, children: int, meters: Meters | None
    ) -> None:
        super().__init__(retained, compact_after, children, meters)
        self._key_lines: dict[tuple[str, str, str], tuple[int, bytes]] = {}
        self.dropped = False
        """Whether lines of the file are no longer needed."""
        self.apart: set[str] = set()
        """Runs whose start payload is kept apart."""
        self.gone: list[str] = []
        """Such runs that were dropped, and that the file still has."""

    @property
    def newest(self) -> int:
        """The place of the newest entry."""
        return self._seq

    @property
    def lines(self) -> int:
        """How many lines `snapshot` has, keys without their runs apart."""
        return sum(len(kept.places) for kept in self._streams.values())

    def in_force(self, scope: tuple[str, str, str], at: datetime) -> IdempotencyKey | None:
        """The key that stands for a run at a time."""
        known = self._keys.get(scope)
        return known if known is not None and at < known.expires_at else None

    def put(self, written: Sequence[_Written]) -> None:
        """Keep events that are on disk."""
        for seq, event, line, apart in written:
            self._keep(seq, event.TYPE, event.execution_id, line, parent_of(event))
            if apart:
                self.apart.add(event.execution_id)
            if isinstance(event, IdempotencyKey):
                self.remember(event, line)
        self._grown(len(written), written[-1].event.time)

    def take(self, head: _Head, line: bytes) -> None:
        """Keep a line that was read."""
        # A line without a place, or with one that was given before, comes behind the others.
        self._keep(max(self._seq + 1, head.seq), head.type, head.stream, line, head.parent)
        if head.apart:
            self.apart.add(head.stream)
        self._grown(1, head.time)

    def remember(self, key: IdempotencyKey, line: bytes) -> None:
        """Keep a key, or let it go, as its newest line says."""
        self._remember(key)
        if self._keys.get(key.scope) is key:
            self._key_lines[key.scope] = self._seq, line
        elif key.scope not in self._keys:
            self._key_lines.pop(key.scope, None)

    def check(self, quarantine: Quarantine) -> None:
        """Read every line that is kept to its end, and let go of those that cannot be read."""
        newest = self._seq
        for name, kept in list(self._streams.items()):
            good = []
            for place, line in zip(kept.places, kept.lines, strict=True):
                try:
                    good.append((place, decode_event(line), line))
                except BadRequestError as error:
                    quarantine.add(f"seq {place}", line, error.detail)
            if all(isinstance(event, IdempotencyKey) for _, event, _ in good):
                # All that is left of a run is its key, which is known by now.
                del self._streams[name]
            elif len(good) < len(kept.places):
                self._streams[name] = type(kept)()
                for place, event, line in good:
                    self._keep(place, event.TYPE, name, line, parent_of(event))
        self._seq = newest

    def snapshot(self) -> Iterator[bytes]:
        """The lines as they are now, in their order; they may be read in another thread."""
        lines = dict(self._key_lines.values())
        for kept in self._streams.values():
            lines.update(zip(kept.places, kept.lines, strict=True))
        return (lines[seq] for seq in sorted(lines))

    def _compact(self, now: datetime) -> None:
        before = self.lines
        super()._compact(now)
        self._key_lines = {scope: self._key_lines[scope] for scope in self._keys}
        gone = self.apart.difference(self._streams)
        self.apart -= gone
        self.gone += gone
        self.dropped = self.dropped or self.lines < before


class _Reader:
    """Takes the lines of the file in; runs in the journal's thread."""

    def __init__(self, state: _State, quarantine: Quarantine) -> None:
        self._state = state
        self._quarantine = quarantine
        self._number = 0

    def take(self, line: bytes) -> None:
        """Take one line."""
        self._number += 1
        try:
            head = _head_of(line)
            if head.type not in EVENTS:
                raise BadRequestError(f"there is no event {head.type!r}", code="malformed_json")
            key = decode_event(line) if head.type == IdempotencyKey.TYPE else None
        except BadRequestError as error:
            self._quarantine.add(f"line {self._number}", line, error.detail)
            return
        self._state.take(head, line)
        if isinstance(key, IdempotencyKey):
            self._state.remember(key, line)

    def finish(self) -> None:
        """All lines were taken."""
        self._state.check(self._quarantine)
        self._state.dropped = False
        # What is kept for them goes as what a crash left behind.
        self._state.gone.clear()


def _head_of(line: bytes) -> _Head:
    try:
        return _head(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Written with a tag, perhaps.
        event = decode_event(line)
        written = codec.decode(line)
        seq, apart = written.get("seq"), written.get("apart") is True
        place = seq if isinstance(seq, int) else 0
        return _Head(
            type=event.TYPE,
            stream=event.execution_id,
            time=event.time,
            seq=place,
            apart=apart,
            parent=parent_of(event),
        )
