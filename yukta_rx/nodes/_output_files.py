"""The files that one node writes: opened on first use, a bounded number of them at a time.

A line goes to the file in one piece and at once; a failed write leaves no part of it behind.
Features: ENG-01, SEC-03.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError
from yukta_rx.nodes._files import locate_target
from yukta_rx.nodes._lines import LINES, checked_members, csv_line, csv_row
from yukta_rx.nodes._records import csv_columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

    from yukta_rx.plugins.contract import NodeContext

MAX_OPEN: Final = 64
"""Files of one node that are open at a time; another one closes the one used longest ago."""

_PIECE: Final = 1024 * 1024


class OutputFiles:
    """Writes lines to files by their paths; callable from any thread.

    Args:
        ctx: says which folders are allowed; gets a line and a count where a file is mended.
    """

    def __init__(self, ctx: NodeContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._closed = False
        self._open: OrderedDict[tuple[Path, bool], _OutputFile] = OrderedDict()
        self._drafts: dict[Path, Path] = {}
        """Files to be replaced, and where their new content is kept until then."""
        self._last: tuple[str, Path] | None = None

    def open(self, path: str, *, replace: bool) -> None:
        """Open a file ahead of its first line.

        Raises:
            BadInputError: it may not be written.
            OSError: it cannot be written.
        """
        with self._lock:
            self._file(path, replace)

    def write(self, path: str, form: str, payload: Any, *, replace: bool) -> None:
        """Write one payload as a line.

        Args:
            path: the file, as written in the workflow.
            form: jsonl, csv or text.
            payload: what to write.
            replace: whether the line is for a new file that takes the place of this one.

        Raises:
            BadInputError: the file may not be written, or the payload not in that format.
            OSError: it cannot be written; names path and reason.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the node has ended")
            self._file(path, replace).write(form, payload)

    def finish(self) -> None:
        """Make all lines durable, and put new files in the place of the old ones.

        Raises:
            OSError: one could not; those before it are in place.
        """
        with self._lock:
            for file in self._taken():
                file.sync()
                file.close()
            for place, draft in list(self._drafts.items()):
                with _named(str(place)):
                    _sync(draft)
                    draft.replace(place)
                    del self._drafts[place]
                    _sync(place.parent)

    def close(self) -> None:
        """Close all files, and remove new ones that took no place."""
        with self._lock:
            self._closed = True
            for file in self._taken():
                with suppress(OSError):
                    file.close()
            while self._drafts:
                _, draft = self._drafts.popitem()
                with suppress(OSError):
                    draft.unlink()

    def _taken(self) -> Iterator[_OutputFile]:
        while self._open:
            yield self._open.popitem(last=False)[1]

    def _file(self, path: str, replace: bool) -> _OutputFile:
        key = self._place(path), replace
        file = self._open.get(key)
        if file is not None:
            self._open.move_to_end(key)
            return file
        if len(self._open) >= MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        place = key[0]
        if replace and place not in self._drafts:
            with _named(path):
                self._drafts[place] = _draft_for(place)
        file = _OutputFile(path, self._drafts[place] if replace else place, self._ctx)
        self._open[key] = file
        return file

    def _place(self, path: str) -> Path:
        # Most nodes write one file, and finding its place takes longer than writing a line.
        if self._last is None or self._last[0] != path:
            try:
                place = locate_target(path, self._ctx.settings, self._ctx.base_dir)
            except BadInputError as error:
                raise BadInputError(f"option `path`: {error.detail}", option="path") from error
            self._last = path, place
        return self._last[1]


class _OutputFile:
    """One open file; `name` is its path as written in the workflow."""

    def __init__(self, name: str, place: Path, ctx: NodeContext) -> None:
        self.name = name
        self._ctx = ctx
        self._columns: list[str] | None = None
        self._whole = False
        """Whether the last line is known to be whole."""
        with _named(name):
            self._file: FileIO = open(  # noqa: SIM115
                place, "a+b", buffering=0, opener=_without_links
            )

    def write(self, form: str, payload: Any) -> None:
        """Write one payload as a line."""
        with _named(self.name):
            if not self._whole:
                self._mend(form)
                self._whole = True
            try:
                data = LINES[form](payload) if form in LINES else self._csv(payload)
            except BadInputError as error:
                detail = f"option `format`: the message cannot be written as {form}: {error.detail}"
                raise BadInputError(detail, option="format") from error
            self._append(data)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with _named(self.name):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with _named(self.name):
            self._file.close()

    def _csv(self, payload: Any) -> bytes:
        if self._columns is None:
            self._columns = self._header()
        if self._columns:
            return csv_row(payload, self._columns)
        columns = checked_members(payload)
        data = csv_line(columns) + csv_row(payload, columns)
        self._columns = columns
        return data

    def _header(self) -> list[str]:
        with open(self._file.fileno(), "rb", closefd=False) as reader:
            reader.seek(0)
            try:
                return csv_columns(reader)
            except BadInputError as error:
                detail = f"option `path`: `{self.name}` {error.detail}"
                raise BadInputError(detail, option="path") from error

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
        except OSError:
            self._take_back(written)
            raise

    def _take_back(self, written: int) -> None:
        """Remove the part of a line that was written, unless others wrote behind it."""
        self._whole, self._columns = False, None
        with suppress(OSError):
            end = self._file.tell()
            if written and end == os.fstat(self._file.fileno()).st_size:
                self._file.truncate(end - written)

    def _mend(self, form: str) -> None:
        """End a last line that was cut short, as a crash of the machine leaves it."""
        end = self._file.seek(0, os.SEEK_END)
        if end == 0:
            return
        self._file.seek(end - 1)
        if self._file.read(1) == b"\n":
            return
        # A line that was cut inside quotes would take all that follows into its last cell.
        quoted = form == "csv" and self._count(b'"') % 2 == 1
        self._append(b'"\n' if quoted else b"\n")
        self._ctx.count("cut_line")
        self._ctx.log(f"{self.name}: its last line had no end; written behind it", "stderr")

    def _count(self, sign: bytes) -> int:
        self._file.seek(0)
        return sum(piece.count(sign) for piece in iter(lambda: self._file.read(_PIECE), b""))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Tell errors of the system by the path in the workflow, in one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(f"`{name}` cannot be written: {error.strerror}") from error


def _without_links(path: str, flags: int) -> int:
    # Links were followed when the place was checked; one that came since leads somewhere else.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _draft_for(place: Path) -> Path:
    """Make an empty file beside `place`, with the rights of the file that it will replace."""
    draft = place.with_name(f".yukta-{secrets.token_hex(8)}.tmp")
    draft.touch(exist_ok=False)
    with suppress(FileNotFoundError):
        draft.chmod(place.stat().st_mode & 0o7777)
    return draft


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
