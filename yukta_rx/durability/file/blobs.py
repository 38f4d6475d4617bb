"""Blobs in files: one file for each hash, and a hard link to it for each owner.

`objects/ab/<hash>` holds the bytes; `owners/<store>/<run>/<hash>` is the same file by another name.
So the file system counts who needs a blob, and a crash loses no count: an owner goes with its
folder, and a file in `objects` that has no other name is needed by nobody.

Feature: DUR-02.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from hashlib import sha256 as hash_of
from typing import TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.durability.file._folder import (
    atomic_write,
    fsync_dir,
    make_folder,
    unavailable,
    write_all,
)
from yukta_rx.durability.file._names import id_of, name_of
from yukta_rx.durability.stores.blobs import Owner, checked
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.codec import Blob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

T = TypeVar("T")


_HASH: Final = re.compile("[0-9A-Za-z]{64}")

JOINED: Final = ".joined"
"""A link on its way to the place of a copy."""


class FileBlobStore:
    """See `BlobStore`.

    Args:
        folder: where the files are.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
    """

    def __init__(self, folder: Path, offload: Callable[..., Awaitable[Any]]) -> None:
        self.folder = folder
        self._objects = folder / "objects"
        self._owners = folder / "owners"
        self._offload = offload
        # What adds a name and what removes the last one must not meet.
        self._lock = threading.Lock()
        self.usable = True
        """Whether blobs can be put here: the file system has hard links."""
        self.size = 0
        """Bytes that are held."""
        self._swept_once = False

    async def start(self) -> None:
        """Remove what a crash left behind, and count what is there; once, however many share it."""
        if not self._swept_once:
            await self._in_thread(self._swept)
            self._swept_once = True

    async def close(self) -> None:
        """Nothing is under way."""

    async def put(self, owner: Owner, data: bytes) -> Blob:
        """Keep bytes for an owner."""
        return await self._in_thread(self._put, owner, data)

    async def share(self, owner: Owner, hashes: Iterable[str]) -> None:
        """Keep what is kept already for one more owner.

        Raises:
            StoreUnavailableError: it is missing, or could not be done.
        """
        await self._in_thread(self.share_now, owner, hashes)

    async def get(self, blob: Blob) -> bytes:
        """The bytes of a blob."""
        return await self._in_thread(self._get, blob)

    async def forget(self, owner: Owner) -> None:
        """An owner needs nothing any more."""
        await self._in_thread(self._forget, owner)

    async def keep(self, store: str, runs: Collection[str]) -> None:
        """No other runs of a store need anything any more."""
        await self._in_thread(self._keep, store, frozenset(runs))

    async def _in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        try:
            done: T = await self._offload(fn, *args)
        except OSError as error:
            raise unavailable(self.folder, "blobs cannot be kept", error) from error
        return done

    # -- in any thread

    def write(self, owner: Owner, sha256: str, data: bytes) -> None:
        """Keep bytes of a known hash for an owner. Blocks.

        Raises:
            OSError: they could not be written.
            StoreUnavailableError: the same.
        """
        name, kept = self._owned(owner) / sha256, self._object(sha256)
        with self._lock:
            size = _size(kept)
            if size is None:
                self._made(kept.parent, self._objects)
                atomic_write(kept, data)
                self.size += len(data)
            elif size != len(data):
                # In place, so that those who have it already have it again.
                _rewrite(kept, data)
                self.size += len(data) - size
            if not name.exists():
                self._link(kept, name)

    def share_now(self, owner: Owner, hashes: Iterable[str]) -> None:
        """Keep what is kept already for one more owner. Blocks.

        Raises:
            OSError: it could not be done.
            StoreUnavailableError: it is missing.
        """
        with self._lock:
            for sha256 in hashes:
                name, kept = self._owned(owner) / sha256, self._object(sha256)
                if name.exists():
                    continue
                if not kept.exists():
                    raise StoreUnavailableError(f"blob {sha256} is missing", sha256=sha256)
                self._link(kept, name)

    def _link(self, kept: Path, name: Path) -> None:
        self._made(name.parent, self._owners)
        with contextlib.suppress(FileExistsError):
            os.link(kept, name)
        fsync_dir(name.parent)

    def _put(self, owner: Owner, data: bytes) -> Blob:
        blob = Blob(hash_of(data).hexdigest(), len(data))
        self.write(owner, blob.sha256, data)
        return blob

    def _get(self, blob: Blob) -> bytes:
        try:
            data: bytes | None = self._object(blob.sha256).read_bytes()
        except FileNotFoundError:
            data = None
        return checked(blob, data)

    def _forget(self, owner: Owner) -> None:
        self._removed(self._owned(owner))

    def _keep(self, store: str, runs: frozenset[str]) -> None:
        for path in _inside(self._owners / store):
            if id_of(path.name) not in runs:
                self._removed(path)

    def _removed(self, owned: Path) -> None:
        with self._lock:
            for name in _inside(owned):
                if not _HASH.fullmatch(name.name):
                    continue
                name.unlink(missing_ok=True)
                self._drop_unneeded(self._object(name.name))
            # It is no folder of ours, or has something else in it, if it does not go.
            with contextlib.suppress(OSError):
                owned.rmdir()

    def _drop_unneeded(self, kept: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = kept.stat()
            # Without links nothing says who else needs it; then it goes at the next start.
            if found.st_nlink == 1 and self.usable:
                kept.unlink()
                self.size -= found.st_size

    def _swept(self) -> None:
        make_folder(self._objects)
        make_folder(self._owners)
        fsync_dir(self.folder)
        fsync_dir(self.folder.parent)
        with self._lock:
            self._try_links()
            self.size = 0
            (self.folder / JOINED).unlink(missing_ok=True)
            shelves = _inside(self._objects)
            kept = [kept for shelf in shelves for kept in _inside(shelf) if _is_ours(kept)]
            joined = self._join({one.name: one for one in kept if one.stat().st_nlink == 1})
            for one in kept:
                found = one.stat()
                if found.st_nlink == 1 and one.name not in joined:
                    one.unlink()
                else:
                    self.size += found.st_size

    def _join(self, alone: dict[str, Path]) -> set[str]:
        """Link blobs to their owners, where a copy of the folder made files of their own of them.

        Returns:
            The hashes of those that have an owner.
        """
        found = [name for name in self._owners.rglob("*") if name.name in alone] if alone else []
        for name in found if self.usable else ():
            os.link(alone[name.name], self.folder / JOINED)
            (self.folder / JOINED).replace(name)
        return {name.name for name in found}

    def _try_links(self) -> None:
        probe, other = self.folder / ".probe", self.folder / ".probe.link"
        probe.touch()
        other.unlink(missing_ok=True)
        try:
            os.link(probe, other)
            other.unlink()
        except OSError as error:
            log.warning(
                "%s: the file system has no hard links (%s); large payloads stay in the outputs"
                " that they are in",
                self.folder,
                error.strerror,
            )
            self.usable = False
        probe.unlink()

    def _made(self, folder: Path, below: Path) -> None:
        """Make a folder and those up to `below`, durably."""
        if folder.is_dir():
            return
        if folder.parent != below:
            self._made(folder.parent, below)
        make_folder(folder)
        fsync_dir(folder.parent)

    def _object(self, sha256: str) -> Path:
        if not _HASH.fullmatch(sha256):
            raise StoreUnavailableError(f"{sha256[:100]!r} is no hash of a blob")
        return self._objects / sha256[:2] / sha256

    def _owned(self, owner: Owner) -> Path:
        return self._owners / owner.store / name_of(owner.run)


def _is_ours(path: Path) -> bool:
    """Whether a file is a blob, or was on its way to be one."""
    return _HASH.fullmatch(path.name.removesuffix(".tmp")) is not None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _rewrite(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(fd, len(data))
        write_all(fd, data, 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def _inside(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from tuple(folder.iterdir())
