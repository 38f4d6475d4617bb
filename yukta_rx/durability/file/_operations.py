"""State in memory whose changes are lines of a journal: applied once durable, replayed when opened.

Features: DUR-02, DUR-04.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.durability.file._journal import Journal
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable
    from pathlib import Path

log = logging.getLogger(__name__)

VERSION: Final = 1

ROOM: Final = 10_000
"""Lines beyond twice those that are needed, before a journal is written anew."""

ROOM_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""

_encode = msgspec.json.Encoder().encode


class Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="op", omit_defaults=True):
    """The first line: what the file is.

    Attributes:
        kind: the store.
        version: of the form of the lines.
    """

    kind: str
    version: int


class Operations:
    """The journal of one store.

    Args:
        path: the file.
        kind: the store, as the first line says it.
        known: the operations, as a union of their classes; `Begin` is one of them.
        apply: changes the state; must not fail for what was written here.
        needed: gives operations that make the state from nothing. The list is made at once, what
            it is made of is never changed, and it is read in a thread.
        sync: see `Journal`.
    """

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        known: Any,
        apply: Callable[[Any], object],
        needed: Callable[[], Iterable[msgspec.Struct]],
        sync: bool = True,
    ) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(known).decode
        self._apply = apply
        self._needed = needed
        self._journal = Journal(path, sync=sync)
        self._read = 0
        self._most = 0
        self._most_bytes = 0
        self._compacting = False
        self._tasks: Tasks | None = None

    async def open(self) -> None:
        """Open the journal and make the state from it.

        Raises:
            StoreUnavailableError: it cannot be used, or a line of it is not one of this store;
                names file and line.
        """
        await self._journal.open_with(self._take)
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        try:
            if not self._read:
                await self._journal.append([_encode(Begin(self._kind, VERSION))])
        except BaseException:
            await self._journal.close()
            raise
        self._allow(self._journal.lines, 0)
        if self._journal.lines > ROOM:
            await self._compact()

    async def write(self, operation: msgspec.Struct) -> None:
        """Make a change durable, and apply it; also when the caller is cancelled, only later.

        Raises:
            StoreUnavailableError: it could not be written, and nothing was changed.
        """
        done = self._journal.append(
            [_encode(operation)], lambda error: self._told(operation, error)
        )
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait((done,))
            except asyncio.CancelledError as error:
                # Whoever comes next for the same thing has to see how this ended.
                cancelled = error
        failure = done.exception()
        if cancelled is not None:
            raise cancelled
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Write what waits, and close the file."""
        if self._tasks is not None:
            await self._tasks.ended()
        await self._journal.close()

    # -- parts

    def _take(self, line: bytes) -> None:
        """Apply a line that is read; in the thread of the journal."""
        self._read += 1
        try:
            operation = self._decode(line)
        except msgspec.MsgspecError as error:
            raise self._strange(f"cannot be read: {error}") from error
        first = self._read == 1
        if first is not isinstance(operation, Begin):
            raise self._strange("is the first line, and does not say what this file is")
        if not first:
            self._apply(operation)
        elif (operation.kind, operation.version) != (self._kind, VERSION):
            raise self._strange(
                f"is of {operation.kind}, form {operation.version}; this version reads"
                f" {self._kind}, form {VERSION}"
            )

    def _strange(self, what: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self._journal.path}: line {self._read} {what}")

    def _told(self, operation: msgspec.Struct, error: BaseException | None) -> None:
        if error is not None:
            return
        self._apply(operation)
        journal = self._journal
        over = journal.lines > self._most or journal.size > self._most_bytes
        if over and not self._compacting and self._tasks is not None:
            self._compacting = True
            self._tasks.spawn(self._compact(), f"yukta compact {journal.path.name}")

    def _allow(self, lines: int, size: int) -> None:
        self._most = 2 * lines + ROOM
        self._most_bytes = 2 * size + ROOM_BYTES

    async def _compact(self) -> None:
        """Write the journal anew, without what is no longer needed."""
        journal = self._journal
        self._compacting = True
        try:
            begin = Begin(self._kind, VERSION)
            since, needed = journal.size, self._needed()
            await journal.rewrite((_encode(one) for one in (begin, *needed)), since)
            self._allow(journal.lines, journal.size)
        except StoreUnavailableError as error:
            log.warning("%s is not made smaller for now: %s", journal.path, error)
            self._allow(journal.lines, journal.size)
        finally:
            self._compacting = False


class Turns:
    """One after the other for each key; different keys do not wait for each other."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, list[None]]] = {}

    def taken(self, key: Hashable) -> bool:
        """Whether somebody has, or waits for, the turn of `key`."""
        return key in self._locks

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for the turn of `key`, and have it."""
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[key]
