"""CheckpointLog: one log in files of bounded size, one write and one fdatasync for all that waits.

A group of lines that are written together begins with a line which says that everything before it
is durable. So a hole behind the last such line is a write that a crash has torn, and is cut off;
one before it is damage.

Feature: DUR-02.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from yukta_rx.durability.file._checkpoint_lines import GROUP_LINE, segment_line
from yukta_rx.durability.file._checkpoint_scan import name_of
from yukta_rx.durability.file._folder import (
    PRIVATE,
    fsync_dir,
    make_folder,
    unavailable,
    write_all,
)
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.faults import as_error
from yukta_rx.streams.pool import to_loop
from yukta_rx.streams.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.durability.file._checkpoint_scan import Scan

log = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 64 << 20
"""Size from which on a file is not written to any more."""

GATHERED: Final = 4 << 20
"""Bytes that are gathered for one write, about."""


class Record(Protocol):
    """What is appended."""

    def line(self) -> bytes:
        """The line with its newline. Called in the thread; what it is about must be durable."""


R = TypeVar("R", bound=Record)


class _Group(NamedTuple, Generic[R]):
    records: list[R]
    turn: int


class _Call(NamedTuple):
    """Anything else that is done in its turn; None as its function ends the thread."""

    fn: Callable[[], Any] | None
    future: asyncio.Future[Any]


class Written(NamedTuple, Generic[R]):
    """How records that were handed over fared.

    Attributes:
        records: all of them, in order.
        sizes: of their lines.
        segment: number of the file that they are in.
        start: where in it the first one begins; the others follow.
        error: why they are not there.
    """

    records: list[R]
    sizes: list[int]
    segment: int
    start: int
    error: StoreUnavailableError | None


class CheckpointLog(Generic[R]):
    """Lines in numbered files, in the order of their appends.

    One thread of its own writes. Once a write has failed, everything that was handed over up to
    then fails as well, so that nothing is ever there without what was appended before it.

    Args:
        folder: where the files are.
        told: called on the loop with what was written, in order.
        first: called when something is handed over: what has to be written before it.
        segment_bytes: size from which on the next file is begun.
    """

    def __init__(
        self,
        folder: Path,
        told: Callable[[Written[R]], None],
        first: Callable[[], list[R]],
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.folder = folder
        self._told = told
        self._first = first
        self._most = segment_bytes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: Pump | None = None
        self._jobs: queue.SimpleQueue[_Group[R] | _Call] | None = None
        self._waiting: list[R] = []
        self._turn = 0
        # From here on of the thread.
        self._fd = -1
        self._number = 0
        self._size = 0
        self._cut = False
        """What is behind the good bytes of the file has to go first."""
        self._after: tuple[int, int] | None = None
        self._thread_turn = 0
        self._failure: StoreUnavailableError | None = None

    @property
    def is_open(self) -> bool:
        """Whether lines can be appended."""
        return self._jobs is not None

    def not_open(self) -> StoreUnavailableError:
        """The error of who wants something of a log that is closed."""
        return StoreUnavailableError(f"{self.folder}: is not open")

    async def open(self, scan: Scan) -> None:
        """Read what is there, and be ready to append.

        Raises:
            StoreUnavailableError: a file cannot be read or written; names it.
        """
        if self._jobs is not None:
            raise StoreUnavailableError(f"{self.folder}: is open already")
        self._loop = asyncio.get_running_loop()
        self._pump = Pump.of(self._loop)
        jobs = self._jobs = queue.SimpleQueue()
        threading.Thread(
            target=self._serve, args=(jobs,), name="yukta-checkpoints", daemon=True
        ).start()
        try:
            await self.call(self._open, scan)
        except BaseException:
            await self.close()
            raise

    def append(self, record: R) -> None:
        """Have a record written, together with all that is appended in this turn of the loop."""
        if self._loop is None or self._jobs is None:
            raise self.not_open()
        self._waiting.append(record)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self, *, last: bool = False) -> None:
        if self._jobs is None or self._pump is None or not (self._waiting or last):
            return
        records, self._waiting = self._first() + self._waiting, []
        if records:
            self._pump.outside += 1
            self._jobs.put(_Group(records, self._turn))

    async def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call `fn` in the thread, behind what was appended.

        Raises:
            StoreUnavailableError: the log is closed, or the disk refused.
        """
        return await asyncio.shield(self._submit(lambda: fn(*args)))

    def _submit(self, fn: Callable[[], Any] | None) -> asyncio.Future[Any]:
        if self._jobs is None or self._pump is None:
            raise self.not_open()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._hand_over()
        self._pump.outside += 1
        self._jobs.put(_Call(fn, future))
        return future

    async def remove(self, number: int) -> None:
        """Remove a file that is not written to any more; durable."""
        await self.call(self._remove, number)

    async def close(self) -> None:
        """Write what waits and end the thread; may be called again."""
        if self._jobs is not None:
            self._hand_over(last=True)
            ended = self._submit(None)
            self._jobs = None
            await asyncio.shield(ended)

    # -- back on the loop

    def _report(self, groups: int, written: Written[R], turn: int) -> None:
        assert self._pump is not None
        self._pump.outside -= groups
        self._turn = turn
        self._told(written)

    def _called(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        assert self._pump is not None
        self._pump.outside -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(as_error(error))

    # -- in the thread

    def _serve(self, jobs: queue.SimpleQueue[_Group[R] | _Call]) -> None:
        assert self._loop is not None
        left: _Group[R] | _Call | None = None
        while True:
            job = left or jobs.get()
            left = None
            if isinstance(job, _Group):
                left = self._gathered(job, jobs)
                continue
            result, error = None, None
            try:
                result = (job.fn or self._shut)()
            except OSError as failure:
                error = unavailable(
                    Path(failure.filename or self.folder), "cannot be used", failure
                )
            except BaseException as failure:
                error = failure  # type: ignore[assignment]
            to_loop(self._loop, self._called, job.future, result, error)
            if job.fn is None:
                return

    def _gathered(
        self, first: _Group[R], jobs: queue.SimpleQueue[_Group[R] | _Call]
    ) -> _Call | None:
        """Write a group with all that wait behind it; the job that is next, if one was taken."""
        assert self._loop is not None
        groups: list[_Group[R]] = []
        lines: list[bytes] = []
        left: _Call | None = None
        place = (0, 0)
        error = self._refused(first)
        try:
            left = self._gather(first, jobs, groups, lines, alone=error is not None)
            if error is None:
                place = self._write(b"".join(lines))
        except StoreUnavailableError as failure:
            error = failure
        except OSError as failure:
            path = Path(failure.filename or self.folder / name_of(self._number))
            error = unavailable(path, "cannot be written", failure)
        except Exception as failure:
            log.exception("checkpoints could not be written")
            error = StoreUnavailableError(f"{self.folder}: cannot be written: {failure!r}")
        if error is not None and first.turn == self._thread_turn:
            self._thread_turn += 1
            self._failure = error
        records = first.records if len(groups) == 1 else [r for g in groups for r in g.records]
        written = Written(records, [len(line) for line in lines], *place, error)
        to_loop(self._loop, self._report, len(groups), written, self._thread_turn)
        return left

    @staticmethod
    def _gather(
        first: _Group[R],
        jobs: queue.SimpleQueue[_Group[R] | _Call],
        groups: list[_Group[R]],
        lines: list[bytes],
        *,
        alone: bool,
    ) -> _Call | None:
        groups.append(first)
        if alone:
            return None
        size, job = 0, first
        while True:
            for record in job.records:
                line = record.line()
                lines.append(line)
                size += len(line)
            if size >= GATHERED:
                return None
            try:
                following = jobs.get_nowait()
            except queue.Empty:
                return None
            if isinstance(following, _Call):
                return following
            job = following
            groups.append(job)

    def _refused(self, group: _Group[R]) -> StoreUnavailableError | None:
        """Why a group cannot be written: it was handed over before a failure was known."""
        return self._failure if group.turn != self._thread_turn else None

    def _open(self, scan: Scan) -> None:
        make_folder(self.folder)
        self._number, self._size, self._after = scan.run(self.folder)
        if self._number:
            self._fd = os.open(self.folder / name_of(self._number), os.O_RDWR)
            if os.fstat(self._fd).st_size > self._size:
                os.ftruncate(self._fd, self._size)
            # What another process left to the system is made durable before it is relied on.
            os.fdatasync(self._fd)
        else:
            self._begin(1, None)
        fsync_dir(self.folder)
        fsync_dir(self.folder.parent)

    def _begin(self, number: int, after: tuple[int, int] | None) -> None:
        """Go on with a new file, which has nothing in it yet."""
        path = self.folder / name_of(number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, PRIVATE)
        self._shut()
        self._fd, self._number, self._size, self._after = fd, number, 0, after
        self._cut = False

    def _write(self, data: bytes) -> tuple[int, int]:
        """Make lines durable; the number of their file, and where in it they begin."""
        if self._cut:
            self._tidy()
        if self._size >= self._most:
            self._begin(self._number + 1, (self._number, self._size))
        new = not self._size
        lead = segment_line(self._after) + GROUP_LINE if new else GROUP_LINE
        try:
            write_all(self._fd, lead + data, self._size)
            os.fdatasync(self._fd)
            if not os.fstat(self._fd).st_nlink:
                raise StoreUnavailableError(
                    f"{self.folder / name_of(self._number)}: was removed while it was in use"
                )
            if new:
                fsync_dir(self.folder)
        except BaseException:
            self._cut = True
            with contextlib.suppress(OSError):
                self._tidy()
            raise
        start = self._size + len(lead)
        self._size = start + len(data)
        return self._number, start

    def _tidy(self) -> None:
        """Cut off what a failed write left; where that is not possible, the next file says so."""
        try:
            if os.fstat(self._fd).st_nlink:
                os.ftruncate(self._fd, self._size)
                self._cut = False
                return
        except OSError as error:
            log.warning("%s cannot be cut back: %s", name_of(self._number), error)
        self._begin(self._number + 1, (self._number, self._size))

    def _remove(self, number: int) -> None:
        (self.folder / name_of(number)).unlink(missing_ok=True)
        fsync_dir(self.folder)

    def _shut(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
