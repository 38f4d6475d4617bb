"""Node outputs in files: one log for all nodes of all runs, written behind.  Feature: DUR-02.

Rows are written in the order in which they came, whatever their run. Where they are is kept in
memory; they themselves are read when somebody asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.file._checkpoint_cleaner import Cleaner
from yukta_rx.durability.file._checkpoint_index import Index, Output, Place, Rebuilding
from yukta_rx.durability.file._checkpoint_lines import done_line, row_line
from yukta_rx.durability.file._checkpoint_log import SEGMENT_BYTES, CheckpointLog, Written
from yukta_rx.durability.file._checkpoint_reader import RowReader
from yukta_rx.durability.file._checkpoint_records import (
    CarryRecord,
    ClearRecord,
    CopyRecord,
    IncompleteRecord,
    LargeRowRecord,
    Record,
    RowRecord,
)
from yukta_rx.durability.file._checkpoint_scan import Scan, name_of
from yukta_rx.durability.file._quarantine import Quarantine
from yukta_rx.durability.stores.blobs import Owner, checked, opened
from yukta_rx.durability.stores.checkpoints import (
    DAMAGED,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
    encode_row,
)
from yukta_rx.durability.stores.claims import STORE, claims_of, references_in, without
from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters
    from yukta_rx.model.codec import Blob

    Line = bytes

log = logging.getLogger(__name__)

QUEUE: Final = 4 << 20
"""Bytes that may wait to be written before nodes are held back."""

UNREADABLE: Final = "the line is not what its check sum says; the output it belongs to is no use"


class FileNodeCheckpointStore:
    """See `NodeCheckpointStore`.

    Args:
        folder: where the files are; nothing else writes to it.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        blobs: keeps payloads that are too large for a row; None keeps every payload in its row.
        claim_bytes: size from which on a payload is; 0 for none.
        meters: count lines that cannot be read.
        segment_bytes: size from which on the next file is begun.
        queue_bytes: bytes that may wait before nodes are held back.
    """

    durable = True
    synchronous = False

    def __init__(
        self,
        folder: Path,
        offload: Callable[..., Awaitable[Any]],
        *,
        blobs: FileBlobStore | None = None,
        claim_bytes: int = 0,
        meters: Meters | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        queue_bytes: int = QUEUE,
    ) -> None:
        self._folder = folder
        self._offload = offload
        self._blobs = blobs
        self._claim_bytes = claim_bytes if blobs is not None else 0
        self._queue_bytes = queue_bytes
        self._log: CheckpointLog[Record] = CheckpointLog(
            folder, self._settled, self._first, segment_bytes
        )
        self._reader = RowReader(folder, offload, blobs)
        self._index = Index()
        self._owed: dict[Output, None] = {}
        """Outputs that were given up, and that could not be written."""
        self._owed_clears: dict[str, ClearRecord] = {}
        self._cleaner: Cleaner | None = None
        self._tasks: Tasks | None = None
        self._queued = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.torn = 0
        """Unfinished writes that were cut off when the files were opened."""
        self._meters = meters
        self._found: list[Quarantined] = []

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read, since this server started; they were put aside."""
        return self._found

    async def start(self) -> None:
        """Read what there is.

        Raises:
            StoreUnavailableError: a file cannot be read or written; names it.
        """
        found, aside = Rebuilding(), self._aside()

        def hurt(number: int, start: int, line: Line) -> None:
            aside.add(f"{name_of(number)} at byte {start}", line, UNREADABLE)
            found.hurt(number, start, line)

        scan = Scan(found.take, hurt, found.sized)
        await self._log.open(scan)
        self._index = await self._log.call(found.finish)
        self.torn = scan.torn
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._cleaner = Cleaner(
            self._index, self._log, self._submit, self._hurt, self._offload, self._tasks
        )
        await self._put_aside(aside)
        for output in found.damaged:
            self._hurt(output)
        if self._blobs is not None:
            await self._blobs.start()
            self._claim_bytes *= self._blobs.usable
            await self._blobs.keep(STORE, tuple(self._index.runs))
        self._cleaner.wake()

    async def close(self) -> None:
        """Write what waits."""
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._tasks is not None:
            await self._tasks.ended()
        await self._log.close()
        if self._blobs is not None:
            await self._blobs.close()

    @property
    def claim_bytes(self) -> int:
        """Size from which on payloads are kept apart."""
        return self._claim_bytes

    async def payload(self, blob: Blob) -> Any:
        """A payload that is kept apart."""
        return checked(blob, None) if self._blobs is None else await opened(self._blobs, blob)

    @property
    def bytes(self) -> int:
        """Bytes of lines that are needed, and of blobs."""
        held = sum(segment.live for segment in self._index.segments.values())
        return held + (self._blobs.size if self._blobs is not None else 0)

    # -- writing

    @property
    def full(self) -> bool:
        """Whether nodes should be held back."""
        return self._queued >= self._queue_bytes

    async def room(self) -> None:
        """Wait until it is not `full`."""
        await self._has_room.wait()

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        """Take a row over; False if the output of the node is not kept."""
        output = self._index.output(execution_id, node_id)
        if output.complete or output.ending is not None or output.reason is not None:
            return False
        return self._take(output, row, done=False) is not None

    def _take(self, output: Output, row: CheckpointRow, *, done: bool) -> RowRecord | None:
        """Have a row written; None if it cannot be."""
        sizes = len(row), len(row.inputs)
        try:
            references = references_in(row) if self._claim_bytes else {}
            light = without(row, references)
            body = encode_row(light)
            large = self._claim_bytes and len(body) > self._claim_bytes
            claims = claims_of(light, self._claim_bytes) if large else {}
        except UnserialisablePayloadError as error:
            log.warning("the output of node %s is not kept: %s", output.node_id, error)
            self._give_up(output, UNSERIALISABLE)
            return None
        if (claims or references) and self._blobs is not None:
            record: RowRecord = LargeRowRecord(
                output, row, claims, references, self._blobs, done=done
            )
        else:
            line = row_line(output.about, output.taken, sizes, body, done=done)
            record = RowRecord(output, line, sizes, done=done)
        output.taken += 1
        self._send(output, record)
        return record

    def _send(self, output: Output, record: RowRecord | IncompleteRecord) -> None:
        output.pending += 1
        output.last = record
        self._submit(record)

    def _submit(self, record: Record) -> None:
        self._log.append(record)
        self._queued += record.weight
        if self._queued >= self._queue_bytes:
            self._has_room.clear()

    def mark_complete(
        self, execution_id: str, node_id: str, row: CheckpointRow | None = None
    ) -> Awaitable[None] | None:
        """Write the last row and the end marker together; None if that is done already."""
        output = self._index.output(execution_id, node_id)
        if output.reason == WRITE_FAILED:
            raise _unwritten(output)
        if output.complete or output.reason is not None:
            return None
        record: RowRecord | None = output.ending
        if record is None:
            if row is not None:
                record = self._take(output, row, done=True)
            else:
                record = RowRecord(output, done_line(output.about, output.taken), done=True)
                self._send(output, record)
            output.ending = record
        return record

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        """Give up the output of a node for good."""
        output = self._index.output(execution_id, node_id)
        if not output.complete and output.reason is None:
            self._give_up(output, reason)

    def _give_up(self, output: Output, reason: str) -> None:
        output.reason = reason
        self._index.release(output)
        self._send(output, IncompleteRecord(output))
        self._wake_cleaner()

    def written(self, execution_id: str, node_id: str) -> Awaitable[None] | None:
        """Wait until all rows of a node that were appended are written; None if they are."""
        output = self._index.find(execution_id, node_id)
        if output is None:
            return None
        if output.reason == WRITE_FAILED:
            raise _unwritten(output)
        record: Record | None = output.last
        return record if output.pending else None

    async def _flushed(self) -> None:
        """Wait until all that was handed over is written, or has failed."""
        await self._log.call(lambda: None)

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        """Let a run begin with what is known of nodes of another one."""
        await self._flushed()
        run = self._index.runs.get(execution_id)
        try:
            for node_id in nodes:
                if run is not None and (old := run.outputs.get(node_id)) is not None:
                    await self._carry(old, self._index.output(into, node_id))
        except StoreUnavailableError:
            with contextlib.suppress(StoreUnavailableError):
                await self.clear(into)
            raise

    async def _carry(self, old: Output, new: Output) -> None:
        """Have copies written of all lines of a node, under another name."""
        nth, rows = 0, old.rows
        while nth < rows:
            lines = await self._reader.lines_of(old, nth, rows)
            for line in lines:
                record = CarryRecord(new, line)
                if record.blobs and self._blobs is not None:
                    await self._blobs.share(Owner(STORE, new.run.id), record.blobs)
                new.taken += 1
                new.ending = record if record.done else None
                self._send(new, record)
            nth += len(lines)
            await self.room()
        if old.complete and new.ending is None:
            new.ending = RowRecord(new, done_line(new.about, new.taken), done=True)
            self._send(new, new.ending)
        if old.reason is not None:
            self._give_up(new, old.reason)
        await self._flushed()
        if new.reason != old.reason or new.complete != old.complete:
            raise _unwritten(new)

    # -- what was written

    def _first(self) -> list[Record]:
        """What could not be written before and has to be before anything else."""
        owed = [output for output in self._owed if not output.run.gone]
        self._owed = {}
        records: list[Record] = [IncompleteRecord(output) for output in owed]
        for output in owed:
            output.pending += 1
        records += self._owed_clears.values()
        self._owed_clears = {}
        self._queued += sum(record.weight for record in records)
        return records

    def _settled(self, written: Written[Record]) -> None:
        """Records are durable, or have failed."""
        self._queued -= sum([record.weight for record in written.records])
        if self._queued < self._queue_bytes:
            self._has_room.set()
        if written.error is not None:
            for record in written.records:
                self._lost(record, written.error)
            return
        number, start = written.segment, written.start
        index = self._index
        segment = index.segment(number)
        for record, size in zip(written.records, written.sizes, strict=True):
            place = Place(number, start, size)
            start += size
            if isinstance(record, RowRecord):
                self._row_written(record, place)
            elif isinstance(record, IncompleteRecord):
                record.output.pending -= 1
                index.seen(record.output.run, number)
                if not record.output.run.gone:
                    index.keep_end(record.output, place)
            elif isinstance(record, ClearRecord):
                index.seen(record.run, number)
                index.keep_cleared(record.run, place)
            elif isinstance(record, CopyRecord):
                self._copied(record, place)
            record.settle(None)
        if not segment.size:
            self._wake_cleaner()
        segment.size = start

    def _wake_cleaner(self) -> None:
        if self._cleaner is not None:
            self._cleaner.wake()

    def _row_written(self, record: RowRecord, place: Place) -> None:
        output = record.output
        output.pending -= 1
        self._index.seen(output.run, place.segment)
        if output.dead:
            return
        if record.has_row:
            self._index.keep_row(output, place, record.messages, record.inputs)
        else:
            self._index.keep_end(output, place)
        if record.done:
            output.complete = True
            output.ending = None

    def _copied(self, record: CopyRecord, place: Place) -> None:
        wanted = record.wanted
        self._index.seen(record.run, place.segment)
        if not wanted:
            return
        if record.output is None:
            self._index.keep_cleared(record.run, place)
        else:
            self._index.move(record.output, record.nth, place)

    def _lost(self, record: Record, error: StoreUnavailableError) -> None:
        """A record could not be written: what it says of a node is not so."""
        if isinstance(record, RowRecord):
            output = record.output
            output.pending -= 1
            if record.done:
                output.ending = None
            if not output.dead:
                log.warning("the output of node %s is given up: %s", output.node_id, error)
                output.reason = WRITE_FAILED
                self._index.release(output)
                self._owed[output] = None
        elif isinstance(record, IncompleteRecord):
            record.output.pending -= 1
            self._owed[record.output] = None
        elif isinstance(record, ClearRecord):
            self._owed_clears[record.run.id] = ClearRecord(record.run)
        record.settle(error)

    def _hurt(self, output: Output) -> None:
        """A line of a node cannot be read: its output is given up, even if it was complete."""
        if not output.dead:
            log.error(
                "run %s: the recorded output of node %s is damaged and cannot be used",
                output.run.id,
                output.node_id,
            )
            output.complete = False
            self._give_up(output, DAMAGED)

    def _aside(self) -> Quarantine:
        return Quarantine(self._folder / "outputs.jsonl", "restart", self._meters)

    async def _put_aside(self, quarantine: Quarantine) -> None:
        self._found += quarantine.found
        try:
            await quarantine.keep()
        except StoreUnavailableError as error:
            log.warning("what cannot be read could not be put aside: %s", error)

    # -- reading

    def _check_open(self) -> None:
        if not self._log.is_open:
            raise self._log.not_open()

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is known of each node of a run, by node id."""
        self._check_open()
        run = self._index.runs.get(execution_id)
        return {
            node_id: NodeCheckpoint(one.complete, one.reason, one.messages, one.inputs)
            for node_id, one in (run.outputs.items() if run is not None else ())
        }

    async def read(
        self, execution_id: str, node_id: str, *, whole: bool = True
    ) -> AsyncGenerator[CheckpointRow, None]:
        """The rows of a node, drawn as they are asked for."""
        self._check_open()
        output = self._index.find(execution_id, node_id)
        nth, rows = 0, 0 if output is None else output.rows
        while output is not None and nth < rows:
            for line in await self._reader.lines_of(output, nth, rows):
                try:
                    row = self._reader.row_in(output, nth, line)
                except StoreUnavailableError:
                    await self._damaged(output, nth, line)
                    raise
                if whole:
                    yield await self._reader.opened(row, line)
                else:
                    yield self._reader.referring(row, line, execution_id, self.payload)
                nth += 1

    async def _damaged(self, output: Output, nth: int, line: Line) -> None:
        place = output.place(nth) if nth < output.rows else Place(0, 0, 0)
        aside = self._aside()
        aside.add(f"{name_of(place.segment)} at byte {place.start}", line, UNREADABLE)
        self._hurt(output)
        await self._put_aside(aside)

    async def runs(self) -> Collection[str]:
        """Ids of all runs of which anything is kept."""
        self._check_open()
        return tuple(self._index.runs)

    async def clear(self, *execution_ids: str) -> None:
        """Forget runs."""
        self._check_open()
        # They are written in this order, so whoever waits for one seldom waits for the next.
        for forgetting in list(map(self._forget, execution_ids)):
            if forgetting is not None:
                await forgetting
        if self._blobs is not None:
            for name in execution_ids:
                await self._blobs.forget(Owner(STORE, name))
        self._wake_cleaner()

    def _forget(self, execution_id: str) -> Awaitable[None] | None:
        """Forget a run; done once that is written, None if nothing has to be."""
        run = self._index.runs.get(execution_id)
        record = self._owed_clears.pop(execution_id, None)
        if run is not None:
            self._index.forget(run)
            if execution_id in self._index.cleared:
                record = ClearRecord(run)
        if record is None:
            return None
        self._submit(record)
        return record


def _unwritten(output: Output) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"the output of node {output.node_id} of run {output.run.id} could not be written"
    )
