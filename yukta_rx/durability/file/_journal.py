"""A file of lines that grows, one write and one fdatasync for everything that waits.

A line ends with a newline byte, and with a blank before it if the next one was appended together
with it: what was appended together is there together or not at all, also after a crash. JSON does
not mind the blank.

Feature: DUR-05.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from yukta_rx.durability.file._folder import (
    PRIVATE,
    fsync_dir,
    make_folder,
    unavailable,
    write_all,
)
from yukta_rx.durability.file._journal_lines import (
    AHEAD,
    CHUNK,
    copy_lines,
    copy_rest,
    joined,
    lines_at,
    scan,
)
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.faults import as_error
from yukta_rx.streams.pool import to_loop
from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

T = TypeVar("T")
Told: TypeAlias = "Callable[[BaseException | None], None]"


class _Standing(NamedTuple):
    """What the file holds: bytes, lines, and how often it was rewritten."""

    size: int
    lines: int
    turn: int


class _Append(NamedTuple):
    """Bytes that go behind all others."""

    data: bytes
    sync: bool
    told: Told


class _Call(NamedTuple):
    """Anything else that is done in its turn; None as its function ends the thread."""

    fn: Callable[[], Any] | None
    told: Callable[[Any, BaseException | None], None]


class Journal:
    """Lines in a file, in the order of their appends.

    One thread of its own writes; the event loop never waits for a disk. A method that cannot do
    what it is asked raises `StoreUnavailableError`, which names the file and the reason, and
    leaves the file as it was: the next one may succeed.

    Args:
        path: the file; made if it is missing, with its folder.
        sync: whether an append is done only when it is on disk; without, when the system has it.
    """

    __slots__ = (
        "_cut",
        "_dir_due",
        "_fd",
        "_good",
        "_jobs",
        "_lines",
        "_loop",
        "_pump",
        "_rewrites",
        "_size",
        "_sync",
        "_turn",
        "path",
        "torn",
    )

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path = path
        self.torn = 0
        """Unfinished appends that were cut off the end when the file was opened: 0 or 1."""
        self._sync = sync
        self._size = 0
        self._lines = 0
        self._turn = 0
        """Rewrites that were reported."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: Pump | None = None
        self._jobs: queue.SimpleQueue[_Append | _Call] | None = None
        # From here on of the thread.
        self._fd = -1
        self._good = 0
        """Bytes of whole lines."""
        self._cut = False
        """What is behind them has to go first."""
        self._rewrites = 0
        self._dir_due = False
        """The file was renamed into place, and that is not durable yet."""

    @property
    def opened(self) -> bool:
        """Whether it can be written to."""
        return self._jobs is not None

    @property
    def size(self) -> int:
        """Bytes in the file, as of the last append or rewrite that was reported."""
        return self._size

    @property
    def lines(self) -> int:
        """Lines in the file, as of the last append or rewrite that was reported."""
        return self._lines

    async def open(self) -> list[bytes]:
        """Open the file; every whole line that is in it."""
        found: list[bytes] = []
        await self.open_with(found.append)
        return found

    async def open_with(self, take: Callable[[bytes], object]) -> None:
        """Open the file and give each whole line to `take`, which is called in the thread.

        Raises:
            StoreUnavailableError: the file cannot be made, read or written.
        """
        await self.open_placed(lambda line, _start: take(line))

    async def open_placed(self, take: Callable[[bytes, int], object]) -> None:
        """Do the same, and say where each line begins."""
        if self._jobs is not None:
            raise StoreUnavailableError(f"{self.path}: is open already")
        self._loop = asyncio.get_running_loop()
        self._pump = Pump.of(self._loop)
        self._jobs = queue.SimpleQueue()
        name = f"yukta-journal {self.path.name}"
        threading.Thread(target=self._serve, args=(self._jobs,), name=name, daemon=True).start()
        try:
            await self._call(lambda: self._open(take), self._stands)
        except BaseException:
            await self.close()
            raise

    def append(
        self, lines: Sequence[bytes], told: Told | None = None, *, sync: bool = True
    ) -> asyncio.Future[None]:
        """Append lines, which are there all or not at all.

        Args:
            lines: without newline bytes, and no blank at the end.
            told: called on the loop when it is done or has failed, in the order of the appends and
                before anything is seen by those who await; also if nobody awaits any more.
            sync: False if it is enough that the system has the lines: they outlive this process,
                perhaps not the machine.

        Returns:
            A future that is done when all lines are on disk. Cancelling it stops nothing.

        Raises:
            ValueError: a line could not be told from two.
        """
        data = joined(lines) if lines else b""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is None:
                self._size += len(data)
                self._lines += len(lines)
            try:
                if told is not None:
                    told(error)
            except Exception as raised:
                error = raised
            _settle(future, error)

        if not lines:
            done(None)
        elif self._jobs is None or self._pump is None:
            done(self._not_open())
        else:
            self._pump.outside += 1
            self._jobs.put(_Append(data, sync and self._sync, done))
        return future

    async def rewrite(
        self,
        lines: Iterable[bytes],
        since: int | None = None,
        placed: Callable[[], object] | None = None,
    ) -> None:
        """Put other lines in the place of those in the file, all or not at all.

        Args:
            lines: the new ones; read in the thread.
            since: the `size` at which they stand for the whole file; what was appended behind it
                stays behind them. None if they stand for everything that was appended before.
            placed: called on the loop once they are there, before anything that came later is
                reported.
        """
        turn = self._turn

        def stands(standing: _Standing) -> None:
            self._stands(standing)
            if placed is not None:
                placed()

        await self._call(lambda: self._rewrite(lines, since, turn), stands)

    def lines_at(self, spans: Iterable[tuple[int, int]], ahead: int = AHEAD) -> Iterator[bytes]:
        """Lines of the file as it is, by where they begin and a place behind each.

        Only in the thread: in a function that is given to `call`, or in the lines of a `rewrite`.

        Args:
            spans: in the order of the file.
            ahead: bytes that are read at least.
        """
        return lines_at(self._fd, self.path, spans, ahead)

    async def call(self, fn: Callable[[], T]) -> T:
        """Call a function in the thread, once all is done that was asked for before."""
        found: list[T] = []
        await self._call(fn, found.append)
        return found[0]

    async def close(self) -> None:
        """Write what waits, close the file and end the thread; may be called again."""
        if self._jobs is not None:
            jobs, self._jobs = self._jobs, None
            await asyncio.shield(self._submit(jobs, None, None))

    # -- between the loop and the thread

    def _not_open(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.path}: is not open")

    async def _call(self, fn: Callable[[], T], then: Callable[[T], object]) -> None:
        if self._jobs is None:
            raise self._not_open()
        await asyncio.shield(self._submit(self._jobs, fn, then))

    def _submit(
        self,
        jobs: queue.SimpleQueue[_Append | _Call],
        fn: Callable[[], Any] | None,
        then: Callable[[Any], object] | None,
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(result: Any, error: BaseException | None) -> None:
            # At once: the next report counts from here.
            if then is not None and error is None:
                then(result)
            _settle(future, error)

        assert self._pump is not None
        self._pump.outside += 1
        jobs.put(_Call(fn, told))
        return future

    def _stands(self, standing: _Standing) -> None:
        self._size, self._lines, self._turn = standing

    def _tell(self, done: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
        assert self._pump is not None
        self._pump.outside -= len(done)
        for told, what in done:
            told(*what)

    # -- in the thread

    def _serve(self, jobs: queue.SimpleQueue[_Append | _Call]) -> None:
        assert self._loop is not None
        left: _Append | _Call | None = None
        while True:
            job = left or jobs.get()
            left = None
            if isinstance(job, _Append):
                batch, left = _gathered(job, jobs)
                error = self._attempt_append(batch)
                to_loop(self._loop, self._tell, [(one.told, (error,)) for one in batch])
                continue
            result, failure = self._attempt(job.fn or self._shut)
            to_loop(self._loop, self._tell, [(job.told, (result, failure))])
            if job.fn is None:
                return

    def _attempt(self, fn: Callable[[], T]) -> tuple[T | None, BaseException | None]:
        try:
            return fn(), None
        except OSError as error:
            return None, unavailable(self.path, "cannot be written", error)
        except BaseException as error:
            return None, error

    def _attempt_append(self, batch: list[_Append]) -> BaseException | None:
        data = b"".join([one.data for one in batch])
        sync = any(one.sync for one in batch)
        return self._attempt(lambda: self._write(data, sync))[1]

    def _open(self, take: Callable[[bytes, int], object]) -> _Standing:
        try:
            make_folder(self.path.parent)
            with contextlib.suppress(FileNotFoundError):
                self._temporary.unlink()
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE)
            fsync_dir(self.path.parent)
        except OSError as error:
            raise unavailable(self.path, "cannot be opened", error) from error
        try:
            self._good, lines = scan(self._fd, take)
            rest = os.fstat(self._fd).st_size - self._good
            if rest:
                told = "%s: the last %d bytes are an unfinished write and were cut off"
                log.warning(told, self.path, rest)
                os.ftruncate(self._fd, self._good)
            # What another process left to the system is made durable before it is relied on.
            os.fdatasync(self._fd)
        except OSError as error:
            raise unavailable(self.path, "cannot be read", error) from error
        self.torn = int(rest > 0)
        return _Standing(self._good, lines, 0)

    def _write(self, data: bytes, sync: bool) -> None:
        self._tidy()
        try:
            write_all(self._fd, data, self._good)
            if sync:
                os.fdatasync(self._fd)
            if not os.fstat(self._fd).st_nlink:
                raise StoreUnavailableError(f"{self.path}: was removed while it was in use")
        except BaseException:
            self._cut = True
            with contextlib.suppress(OSError):
                self._tidy()
            raise
        self._good += len(data)

    def _tidy(self) -> None:
        """Do what an earlier call left to do."""
        if self._cut:
            os.ftruncate(self._fd, self._good)
            self._cut = False
        if self._dir_due:
            fsync_dir(self.path.parent)
            self._dir_due = False

    def _rewrite(self, lines: Iterable[bytes], since: int | None, turn: int) -> _Standing:
        if since is not None and turn != self._rewrites:
            raise ValueError("`since` is a place in a file that was rewritten meanwhile")
        self._tidy()
        fd = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE)
        try:
            size, count = copy_lines(fd, lines)
            if since is not None:
                kept, more = copy_rest(fd, size, self._fd, since, self._good)
                size, count = size + kept, count + more
            os.fsync(fd)
            os.replace(self._temporary, self.path)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                self._temporary.unlink()
            raise
        os.close(self._fd)
        self._fd, self._good = fd, size
        self._rewrites += 1
        # If this fails here, it is done before anything behind it is called durable.
        self._dir_due = True
        with contextlib.suppress(OSError):
            self._tidy()
        return _Standing(size, count, self._rewrites)

    def _shut(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f"{self.path.name}.tmp")


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(as_error(error))


def _gathered(
    first: _Append, jobs: queue.SimpleQueue[_Append | _Call]
) -> tuple[list[_Append], _Call | None]:
    """What waits, up to the first job that is no append, or about a chunk."""
    batch, size = [first], len(first.data)
    while size < CHUNK:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            break
        if isinstance(job, _Call):
            return batch, job
        batch.append(job)
        size += len(job.data)
    return batch, None
