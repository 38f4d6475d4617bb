"""Node outputs in memory, up to a cap; beyond it not at all, or in files. Feature: DUR-02.

What is in memory are the messages themselves. What is in files is JSON, a row per line, written
and read in threads; a file belongs to one node of one run, and goes with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from itertools import count
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.durability.stores.blobs import checked
from yukta_rx.durability.stores.checkpoints import (
    OVER_CAP,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
    decode_row,
    encode_row,
)
from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.model.weight import weigh
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
    from pathlib import Path

    from yukta_rx.config.store_settings import RestartGroup
    from yukta_rx.model.codec import Blob

log = logging.getLogger(__name__)

T = TypeVar("T")

QUEUE: Final = 4 * 1024 * 1024
"""Bytes that may wait to be written to files before nodes are held back."""

CHUNK: Final = 1024 * 1024
"""Bytes of a file that are read at a time, as long as a row is not longer."""

PREFIX: Final = "yukta-output-"
"""Names of the files begin so; those of an earlier process are removed."""

SAMPLE: Final = 4
"""Messages of a batch that are weighed, at least, if it has as many."""

ENVELOPE: Final = 200
"""Bytes that a message takes beside its payload, estimated."""


class _Output:
    """What is recorded of one node."""

    __slots__ = ("bytes", "complete", "file", "inputs", "messages", "reason", "rows")

    def __init__(self) -> None:
        self.rows: list[CheckpointRow] = []
        self.messages = 0
        self.inputs = 0
        self.bytes = 0
        self.complete = False
        self.reason: str | None = None
        self.file: _File | None = None


class MemoryNodeCheckpointStore:
    """See `NodeCheckpointStore`; lost with the process.

    Args:
        settings: the caps, and the folder for what is over them.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
    """

    durable = False
    claim_bytes = 0

    def __init__(self, settings: RestartGroup, offload: Callable[..., Awaitable[Any]]) -> None:
        self._most_messages = settings.messages_per_node
        self._most_bytes = int(settings.bytes_per_node)
        self._folder = settings.spill_dir
        self._offload = offload
        self._runs: dict[str, dict[str, _Output]] = {}
        self._names = count(1)
        self._queued = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._writers: Tasks | None = None
        self.bytes = 0
        """Held in memory and in files, estimated."""

    async def start(self) -> None:
        """Remove files that an earlier process left behind.

        Raises:
            StoreUnavailableError: the folder cannot be used.
        """
        if self._folder is not None:
            await self._in_thread(_emptied, self._folder)

    async def close(self) -> None:
        """Let go of everything; what is under way is finished first."""
        for execution_id in tuple(self._runs):
            await self.clear(execution_id)
        await self._tasks.ended()

    @property
    def _tasks(self) -> Tasks:
        if self._writers is None:
            self._writers = Tasks(asyncio.get_running_loop(), lambda: None)
        return self._writers

    # -- writing

    @property
    def synchronous(self) -> bool:
        """Whether every node stays in memory."""
        return self._folder is None

    @property
    def full(self) -> bool:
        """Whether nodes should be held back."""
        return self._queued >= QUEUE

    async def room(self) -> None:
        """Wait until it is not `full`."""
        await self._has_room.wait()

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        """Take a row over; False if the output of the node is not kept."""
        output = self._output(execution_id, node_id)
        if output.complete or output.reason is not None:
            return False
        messages = output.messages + len(row)
        if output.file is None:
            # What is over the cap by its number need not be weighed.
            size = 0 if messages > self._most_messages else _weight(row)
            if messages <= self._most_messages and output.bytes + size <= self._most_bytes:
                output.rows.append(row)
                output.messages = messages
                output.inputs += len(row.inputs)
                self._grow(output, size)
                return True
            if self._folder is None:
                self._give_up(output, OVER_CAP)
                return False
            output.file = _File(self._folder / f"{PREFIX}{next(self._names)}.jsonl")
            rows, output.rows = [*output.rows, row], []
            self._grow(output, -output.bytes)
        else:
            rows = [row]
        output.messages = messages
        output.inputs += len(row.inputs)
        return self._write(output, output.file, rows)

    def _write(self, output: _Output, file: _File, rows: list[CheckpointRow]) -> bool:
        try:
            lines = b"".join(encode_row(row) + b"\n" for row in rows)
        except UnserialisablePayloadError:
            self._give_up(output, UNSERIALISABLE)
            return False
        self._grow(output, len(lines))
        self._queue(len(lines))
        file.waiting.append(lines)
        if file.writer is None:
            file.writer = self._tasks.spawn(self._written(output, file), f"yukta {file.path.name}")
        return True

    async def _written(self, output: _Output, file: _File) -> None:
        """Write what waits for one file, until nothing does."""
        try:
            while file.waiting and output.reason is None:
                lines, file.waiting = b"".join(file.waiting), []
                try:
                    await self._in_thread(file.write, lines)
                except StoreUnavailableError as error:
                    log.warning("a node output could not be written: %s", error)
                    self._give_up(output, WRITE_FAILED)
                finally:
                    self._queue(-len(lines))
        finally:
            file.writer = None

    def mark_complete(
        self, execution_id: str, node_id: str, row: CheckpointRow | None = None
    ) -> Awaitable[None] | None:
        """Take the last row and the mark over together; None if that is done already."""
        output = self._output(execution_id, node_id)
        if row is not None:
            self.append(execution_id, node_id, row)
        if output.file is not None and output.reason is None and not output.complete:
            return self._sealed(output, output.file)
        if output.reason == WRITE_FAILED:
            raise _unwritten(node_id)
        output.complete = output.reason is None
        return None

    async def _sealed(self, output: _Output, file: _File) -> None:
        if file.writer is not None:
            await asyncio.wait((file.writer,))
        if output.reason == WRITE_FAILED:
            raise _unwritten(file.path.name)
        if output.reason is None:
            await self._in_thread(file.close)
            output.complete = output.reason is None

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        """Give up the output of a node for good."""
        output = self._output(execution_id, node_id)
        if not output.complete and output.reason is None:
            self._give_up(output, reason)

    def _give_up(self, output: _Output, reason: str) -> None:
        output.reason = reason
        self._release(output)

    def _release(self, output: _Output) -> None:
        """Let go of what is held for a node."""
        output.rows = []
        output.messages = output.inputs = 0
        self._grow(output, -output.bytes)
        file, output.file = output.file, None
        if file is not None:
            self._queue(-sum(map(len, file.waiting)))
            file.waiting = []
            self._tasks.spawn(self._removed(file), f"yukta {file.path.name}")

    async def _removed(self, file: _File) -> None:
        if file.writer is not None:
            await asyncio.wait((file.writer,))
        try:
            await self._in_thread(file.remove)
        except StoreUnavailableError as error:
            log.warning("a node output could not be removed: %s", error)

    def _output(self, execution_id: str, node_id: str) -> _Output:
        outputs = self._runs.setdefault(execution_id, {})
        output = outputs.get(node_id)
        if output is None:
            output = outputs[node_id] = _Output()
        return output

    def _grow(self, output: _Output, size: int) -> None:
        output.bytes += size
        self.bytes += size

    def _queue(self, size: int) -> None:
        self._queued += size
        if self.full:
            self._has_room.clear()
        else:
            self._has_room.set()

    def written(self, execution_id: str, node_id: str) -> Awaitable[None] | None:
        """Wait until all rows of a node that were appended are written; None if they are."""
        output = self._output(execution_id, node_id)
        if output.file is not None and output.file.writer is not None:
            return self._flushed(output, output.file)
        if output.reason == WRITE_FAILED:
            raise _unwritten(node_id)
        return None

    async def _flushed(self, output: _Output, file: _File) -> None:
        if file.writer is not None:
            await asyncio.wait((file.writer,))
        if output.reason == WRITE_FAILED:
            raise _unwritten(file.path.name)

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        """Let a run begin with what is known of nodes of another one."""
        known = self._runs.get(execution_id, {})
        made: dict[str, _Output] = {}
        try:
            for node_id in nodes:
                if node_id in known:
                    await self._carry(known[node_id], made.setdefault(node_id, _Output()))
        except StoreUnavailableError:
            for output in made.values():
                self._release(output)
            raise
        if made:
            self._runs[into] = made

    async def _carry(self, old: _Output, new: _Output) -> None:
        if old.file is not None:
            await self._flushed(old, old.file)
        new.rows = list(old.rows)
        new.messages, new.inputs = old.messages, old.inputs
        new.complete, new.reason = old.complete, old.reason
        self._grow(new, old.bytes)
        if old.file is not None and self._folder is not None:
            new.file = _File(self._folder / f"{PREFIX}{next(self._names)}.jsonl")
            await self._in_thread(new.file.copy, old.file.path)

    # -- reading

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is known of each node of a run, by node id."""
        outputs = self._runs.get(execution_id, {})
        return {
            node_id: NodeCheckpoint(one.complete, one.reason, one.messages, one.inputs)
            for node_id, one in outputs.items()
        }

    async def payload(self, blob: Blob) -> Any:
        """None is kept apart."""
        return checked(blob, None)

    async def read(
        self, execution_id: str, node_id: str, *, whole: bool = True
    ) -> AsyncGenerator[CheckpointRow, None]:
        """The rows of a node, drawn as they are asked for."""
        output = self._runs.get(execution_id, {}).get(node_id)
        if output is None:
            return
        # As it is now: it may move to a file, or be given up.
        rows, file = tuple(output.rows), output.file
        for row in rows:
            yield row
        if file is None:
            return
        # Opened anew for each piece: a reader that is cut off in a thread would leave it open.
        place = 0
        while lines := await self._in_thread(_piece, file.path, place, output.complete):
            place += sum(map(len, lines))
            for line in lines:
                yield decode_row(line, node_id)

    async def runs(self) -> Collection[str]:
        """Ids of all runs of which anything is kept."""
        return tuple(self._runs)

    async def clear(self, *execution_ids: str) -> None:
        """Forget runs."""
        for execution_id in execution_ids:
            for output in self._runs.pop(execution_id, {}).values():
                output.reason = output.reason or OVER_CAP
                self._release(output)

    async def _in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        try:
            done: T = await self._offload(fn, *args)
        except OSError as error:
            raise StoreUnavailableError(f"{error.filename or self._folder}: {error}") from error
        return done


class _File:
    """The file of one node; its methods block and are called from one thread at a time."""

    __slots__ = ("_copied", "_file", "path", "waiting", "writer")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: list[bytes] = []
        """Lines that are not on their way yet."""
        self.writer: asyncio.Task[None] | None = None
        self._file: IO[bytes] | None = None
        self._copied = False

    def copy(self, other: Path) -> None:
        shutil.copyfile(other, self.path)
        self._copied = True

    def write(self, lines: bytes) -> None:
        if self._file is None:
            self._file = self.path.open("ab" if self._copied else "xb")
        self._file.write(lines)
        self._file.flush()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            # It may still hold what found no room on the disk.
            self.close()
        self.path.unlink(missing_ok=True)


def _piece(path: Path, place: int, complete: bool) -> list[bytes]:
    with path.open("rb") as file:
        file.seek(place)
        lines = file.readlines(CHUNK)
    if not complete and lines and not lines[-1].endswith(b"\n"):
        # It is being written.
        del lines[-1]
    return lines


def _emptied(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{PREFIX}*.jsonl"):
        path.unlink(missing_ok=True)


def _weight(row: CheckpointRow) -> int:
    """Estimate the bytes that a row occupies; of a large batch some messages stand for the rest."""
    total = 0
    for _, batch in row.batches:
        some = batch[:: len(batch) // SAMPLE + 1]
        total += sum([weigh(msg.payload) for msg in some]) * len(batch) // len(some)
        total += ENVELOPE * len(batch)
    return total


def _unwritten(what: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the output of {what} could not be written")
