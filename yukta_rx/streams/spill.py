"""Spill: elements that wait on disk, first in, first out. Feature: ENG-01.

The files have no name from the moment they are made, so a process that is killed leaves none
behind. Every method blocks and is called from a thread. `close` may come while another is under
way in a call that was cancelled.
"""

from __future__ import annotations

import contextlib
import pickle
import tempfile
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT: Final = 16 * 1024 * 1024
"""Bytes after which a new file is begun; a file that is read to its end goes."""


class _Segment:
    """One file: where it is written and where it is read."""

    __slots__ = ("chunks", "file", "read", "written")

    def __init__(self, folder: Path | None) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="yukta-spill-", dir=folder)  # noqa: SIM115
        self.written = 0
        self.read = 0
        self.chunks: deque[int] = deque()
        """Lengths of the chunks that were not read yet."""


class Spill:
    """A queue of chunks on disk.

    Args:
        folder: where; the system's folder for temporary files if None.
    """

    __slots__ = ("_closed", "_folder", "_lock", "_segments")

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._closed = False
        self._segments: deque[_Segment] = deque()

    @property
    def used(self) -> bool:
        """Whether there is a file, which `close` lets go of."""
        return bool(self._segments)

    def write(self, chunk: list[Any]) -> None:
        """Append a chunk.

        Raises:
            OSError: it could not be written.
            Exception: an element cannot be written at all (see `pickle`).
        """
        data = pickle.dumps(chunk, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if not self._closed:
                self._append(data)

    def _append(self, data: bytes) -> None:
        if not self._segments or self._segments[-1].written >= SEGMENT:
            self._segments.append(_Segment(self._folder))
        segment = self._segments[-1]
        segment.file.seek(segment.written)
        segment.file.write(data)
        segment.file.flush()
        segment.written += len(data)
        segment.chunks.append(len(data))

    def read(self) -> list[Any]:
        """Take the oldest chunk out; empty if there is none.

        Raises:
            OSError: it could not be read.
        """
        with self._lock:
            return self._next() if self._segments else []

    def _next(self) -> list[Any]:
        segment = self._segments[0]
        length = segment.chunks.popleft()
        segment.file.seek(segment.read)
        # Written by this process into a file that nobody else can open.
        chunk: list[Any] = pickle.loads(segment.file.read(length))
        segment.read += length
        if not segment.chunks:
            self._segments.popleft().file.close()
        return chunk

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            while self._segments:
                # It may still hold what found no room on the disk.
                with contextlib.suppress(OSError):
                    self._segments.popleft().file.close()
