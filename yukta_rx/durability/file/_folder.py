"""The folder that file stores live in: one owner at a time, and writes that are whole or not there.

Feature: DUR-05.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from errno import ENOTDIR
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

T = TypeVar("T")

LOCK: Final = ".lock"
PROBE: Final = ".probe"
PRIVATE: Final = 0o600
"""Files hold payloads: they are for the owner of the process."""

PRIVATE_FOLDER: Final = 0o700
"""Of a folder that is made; one that is there keeps the rights that somebody gave it."""


def unavailable(path: Path, what: str, error: OSError) -> StoreUnavailableError:
    """The error that says which file or folder failed, at what, and why."""
    return StoreUnavailableError(f"{path}: {what}: {error.strerror or error}")


def make_folder(path: Path) -> None:
    """Make a folder, for the owner alone, and those above it, unless it is there. Blocks.

    Raises:
        OSError: it cannot be made.
    """
    try:
        path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(path)) from error


def fsync_dir(path: Path) -> None:
    """Make the names in a folder durable. Blocks.

    Raises:
        OSError: it could not be done.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write `data` at `offset`, all of it. Blocks.

    Raises:
        OSError: it could not be written; a part may have been.
    """
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest = rest[written:]
        offset += written


def atomic_write(path: Path, data: bytes) -> None:
    """Put a file in place that is durable, or leave what was there. Blocks.

    Raises:
        StoreUnavailableError: it could not be written; names the file and the reason.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
        try:
            write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        fsync_dir(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise unavailable(path, "cannot be written", error) from error


class Folder:
    """A folder that this process alone writes to, as an async context.

    It is made if it is missing, locked against other servers, also those of this process, and
    tried out: a file is written and made durable. The lock goes with the process, however it ends.

    Args:
        path: the folder.
        instance: how this server is named to another one that wants the folder.
        pool: where blocking calls run; a thread of its own if None.
    """

    __slots__ = ("_fd", "_instance", "_own", "_pool", "path")

    def __init__(self, path: Path, *, instance: str = "", pool: BlockingPool | None = None) -> None:
        self.path = path
        self._instance = instance
        self._own = pool is None
        self._pool = pool
        self._fd: int | None = None

    async def __aenter__(self) -> Folder:
        """Take the folder.

        Raises:
            StoreUnavailableError: it cannot be made or written, or another server has it; names
                the folder, and the reason or who that is.
        """
        if self._own:
            self._pool = BlockingPool(1)
        try:
            self._fd = await self.call(self._take)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let another server have it."""
        fd, self._fd = self._fd, None
        try:
            if fd is not None:
                await self.call(_release, fd)
        finally:
            self._end()

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Await a call that blocks."""
        if self._pool is None:
            raise StoreUnavailableError(f"{self.path}: the folder is not open")
        return await self._pool.call(fn, *args)

    async def check(self) -> float:
        """Find out whether the folder still is this one and keeps what is written.

        Returns:
            The seconds that a small durable write took.

        Raises:
            StoreUnavailableError: it does not; names the folder and the reason.
        """
        return await self.call(self._check)

    async def atomic_write(self, path: Path, data: bytes) -> None:
        """Put a file in place that is durable, or leave what was there.

        Raises:
            StoreUnavailableError: it could not be written; names the file and the reason.
        """
        await self.call(atomic_write, path, data)

    async def fsync_dir(self, path: Path | None = None) -> None:
        """Make the names in a folder durable, in this one unless another is given.

        Raises:
            StoreUnavailableError: it could not be done; names the folder and the reason.
        """
        await self.call(self._sync, path or self.path)

    @staticmethod
    def _sync(path: Path) -> None:
        try:
            fsync_dir(path)
        except OSError as error:
            raise unavailable(path, "cannot be made durable", error) from error

    def _end(self) -> None:
        if self._own and self._pool is not None:
            self._pool.close()
            self._pool = None

    # -- in a thread

    def _take(self) -> int:
        try:
            make_folder(self.path)
            fd = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
        except OSError as error:
            raise unavailable(self.path, "the folder cannot be used", error) from error
        try:
            self._lock(fd)
            self._probe(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 1000, 0).decode(errors="replace").strip() or "it does not say who"
            raise StoreUnavailableError(
                f"{self.path}: another server has this folder ({holder}); give each server a folder"
                " of its own, or end the other one",
                path=str(self.path),
                holder=holder,
            ) from None
        except OSError as error:
            raise unavailable(self.path, "the folder cannot be locked", error) from error

    def _probe(self, fd: int) -> None:
        """Write who has the folder, and find out whether it keeps what is written."""
        about = f"pid {os.getpid()} on {socket.gethostname()}"
        if self._instance:
            about += f", instance {self._instance}"
        try:
            self._write_probe()
            os.ftruncate(fd, 0)
            write_all(fd, f"{about}\n".encode(), 0)
        except OSError as error:
            raise unavailable(self.path, "the folder cannot be written", error) from error

    def _write_probe(self) -> None:
        atomic_write(self.path / PROBE, b"This folder can be written.\n")
        (self.path / PROBE).unlink()

    def _check(self) -> float:
        if self._fd is None:
            raise StoreUnavailableError(f"{self.path}: the folder is not open")
        began = perf_counter()
        try:
            ours, there = os.fstat(self._fd), os.stat(self.path / LOCK)
            if not os.path.samestat(ours, there):
                raise StoreUnavailableError(f"{self.path}: another folder took its place")
            self._write_probe()
        except OSError as error:
            raise unavailable(self.path, "the folder cannot be used", error) from error
        return perf_counter() - began


def _release(fd: int) -> None:
    """Let go of the lock; what it said of its holder goes with it."""
    try:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)
