"""Lines in numbered files of which the newest grows, so that what is old can go by whole files.

Feature: DUR-05.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from typing import TYPE_CHECKING, Final, TypeAlias

from yukta_rx.durability.file._folder import PRIVATE, fsync_dir, unavailable
from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.file._journal_lines import MORE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    Offload: TypeAlias = Callable[..., Awaitable[Any]]
    Take: TypeAlias = Callable[[int, int, int, bytes], object]
    """Called with the number of a segment, begin and end of a line in it, and the line."""
    Placed: TypeAlias = Callable[[int, Sequence[int], int], None]
    """Called with the number of a segment, the begins of some lines in it, and the last one's end.
    """

SEGMENT: Final = 16 << 20
"""Bytes with which a segment takes no more."""

_NAME: Final = re.compile(r"([0-9]{8})-([0-9]+)\.jsonl")


class MovedError(Exception):
    """What was to be read is somewhere else by now, or gone: look in the index again."""


class SegmentedLog:
    """An append-only log over several files of one folder. Knows no meaning of its lines.

    Args:
        path: the folder; nothing else writes to it.
        offload: `await offload(fn, *args)` calls `fn` in a thread.
        limit: bytes with which a segment takes no more.
        head: the lines that every new segment begins with.
    """

    __slots__ = ("_head", "_journal", "_limit", "_offload", "_paths", "_turn", "path", "sizes")

    def __init__(
        self,
        path: Path,
        offload: Offload,
        *,
        limit: int = SEGMENT,
        head: Callable[[], Sequence[bytes]] = tuple,
    ) -> None:
        self.path = path
        self.sizes: dict[int, int] = {}
        """Bytes of each segment, the oldest first."""
        self._offload = offload
        self._limit = limit
        self._head = head
        self._paths: dict[int, Path] = {}
        self._journal: Journal | None = None
        self._turn = asyncio.Lock()

    async def open(self, take: Take, take_head: Take | None = None) -> None:
        """Open the log.

        Args:
            take: gets every whole line, in order; called in a thread.
            take_head: if given, of all segments but the newest only the first line is read, and
                that goes here.

        Raises:
            StoreUnavailableError: a file cannot be read or written; names it.
        """
        self._paths = await self._offload(_segments, self.path)
        newest = max(self._paths, default=1)
        self._paths.setdefault(newest, self.path / f"{newest:08}-0.jsonl")
        self._journal = await _opened(self._paths[newest])

        def look() -> None:
            for number, path in self._paths.items():
                self.sizes[number] = path.stat().st_size
                if take_head is None or number == newest:
                    for start, end, line in _lines(path):
                        take(number, start, end, line)
                else:
                    for start, end, line in _lines(path):
                        take_head(number, start, end, line)
                        break

        await self._offload(_guarded, self.path, look)

    async def close(self) -> None:
        """Write what waits."""
        if self._journal is not None:
            await self._journal.close()

    @property
    def newest(self) -> int:
        """Number of the segment that grows."""
        return next(reversed(self.sizes))

    @property
    def oldest(self) -> int:
        """Number of the first segment."""
        return next(iter(self.sizes))

    async def append(self, lines: Sequence[bytes], placed: Placed) -> None:
        """Write lines, all or none of them; when this returns they are on disk.

        Args:
            lines: what is written.
            placed: told where, in the order in which the lines stand in the log, also if the
                caller is cancelled meanwhile.

        Raises:
            StoreUnavailableError: they were not written.
        """
        if self.sizes[self.newest] >= self._limit:
            async with self._turn:
                if self.sizes[self.newest] >= self._limit:
                    await self._begin_next()
        journal, number = self._open_journal(), self.newest

        def told(error: BaseException | None) -> None:
            if error is None:
                self.sizes[number] = journal.size
                placed(number, *_places(lines, journal.size))

        await asyncio.shield(journal.append(lines, told))

    async def read(self, number: int, start: int, end: int) -> list[bytes]:
        """The lines between two places of a segment.

        Raises:
            MovedError: the segment was rewritten, or dropped.
            StoreUnavailableError: it cannot be read.
        """
        path = self._paths.get(number)
        if path is None:
            raise MovedError
        found: list[bytes] = await self._offload(_guarded, path, lambda: _read(path, start, end))
        return found

    async def lines(self, number: int) -> list[tuple[int, int, bytes]]:
        """Every line of a segment with its begin and end; see `read`."""
        path, size = self._paths.get(number), self.sizes.get(number, 0)
        if path is None:
            raise MovedError
        found: list[tuple[int, int, bytes]] = await self._offload(
            _guarded, path, lambda: [one for one in _lines(path) if one[1] <= size]
        )
        return found

    async def rewrite(
        self,
        number: int,
        wanted: Callable[[bytes], bool],
        moved: Callable[[list[tuple[int, int, bytes]]], None],
    ) -> None:
        """Leave only some lines in a segment that grows no more.

        Args:
            number: the segment.
            wanted: whether a line stays; called in a thread.
            moved: told begin, end and text of every line that stayed, at the moment from which on
                these are what `read` takes.
        """
        old = self._paths[number]
        generation = int(_parts(old)[1]) + 1
        new = self.path / f"{number:08}-{generation}.jsonl"
        kept = await self._offload(_guarded, old, lambda: _copy(old, new, wanted))
        self._paths[number] = new
        self.sizes[number] = kept[-1][1] if kept else 0
        moved(kept)
        await self._offload(_guarded, old, lambda: old.unlink(missing_ok=True))

    async def drop(self, number: int) -> None:
        """Remove a segment that grows no more; it is gone for readers at once."""
        path = self._paths.pop(number)
        del self.sizes[number]
        await self._offload(_guarded, path, lambda: path.unlink(missing_ok=True))

    async def _begin_next(self) -> None:
        """Let the next segment grow; what was appended before is on disk by then."""
        number = self.newest + 1
        path = self.path / f"{number:08}-0.jsonl"
        begun = await _opened(path)
        try:
            head = self._head()
            if head:
                await begun.append(head)
            await self._open_journal().close()
        except BaseException:
            await begun.close()
            raise
        self._journal, self._paths[number], self.sizes[number] = begun, path, begun.size

    def _open_journal(self) -> Journal:
        if self._journal is None:
            raise RuntimeError(f"{self.path}: the log is not open")
        return self._journal


async def _opened(path: Path) -> Journal:
    journal = Journal(path)
    await journal.open_with(_pass_over)
    return journal


def _pass_over(_line: bytes) -> None:
    """Take a line for nothing."""


def _places(lines: Sequence[bytes], end: int) -> tuple[list[int], int]:
    """Where lines begin that were written in one append which ends there."""
    step = len(MORE) + 1
    starts = [end - len(lines[-1]) - 1]
    for line in reversed(lines[:-1]):
        starts.append(starts[-1] - len(line) - step)
    starts.reverse()
    return starts, end


# -- in a thread


def _guarded(path: Path, fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except FileNotFoundError as error:
        raise MovedError from error
    except OSError as error:
        raise unavailable(path, "cannot be read or written", error) from error


def _parts(path: Path) -> tuple[str, str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return match[1], match[2]


def _segments(folder: Path) -> dict[int, Path]:
    """The segments of a folder, the oldest first; what a rewrite left behind goes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found: dict[int, Path] = {}
        files = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        files.sort(key=lambda path: tuple(map(int, _parts(path))))
        for path in files:
            number = int(_parts(path)[0])
            if number in found:
                found[number].unlink()
            found[number] = path
        for path in folder.glob("*.tmp"):
            path.unlink()
    except OSError as error:
        raise unavailable(folder, "the folder cannot be used", error) from error
    return found


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Begin, end and text of every line; an unfinished one at the end is passed over."""
    start = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            end = start + len(line)
            yield start, end, line[:-1].removesuffix(MORE)
            start = end


def _read(path: Path, start: int, end: int) -> list[bytes]:
    with path.open("rb") as file:
        data = os.pread(file.fileno(), end - start, start)
    return [line.removesuffix(MORE) for line in data.split(b"\n")[:-1]]


def _copy(old: Path, new: Path, wanted: Callable[[bytes], bool]) -> list[tuple[int, int, bytes]]:
    temporary = new.with_name(f"{new.name}.tmp")
    kept: list[tuple[int, int, bytes]] = []
    place = 0
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
        with os.fdopen(fd, "wb") as file:
            for _, _, line in _lines(old):
                if wanted(line):
                    file.write(line + b"\n")
                    kept.append((place, place + len(line) + 1, line))
                    place = kept[-1][1]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(new)
        fsync_dir(new.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return kept
