"""Changes of several files that happen together or not at all, also when power goes.

New contents are written aside first, each file forced to disk. Then one file, the intent, is put in
place: from there on the change is decided. What it says is done (files put in place by renaming,
others removed), folders are forced to disk, and the intent is taken away. Whoever finds an intent
carries it out to its end; what was written aside without one is thrown away.

Feature: DUR-05.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from typing import TYPE_CHECKING, Final

import msgspec

from yukta_rx.durability.file._folder import (
    PRIVATE,
    atomic_write,
    fsync_dir,
    unavailable,
    write_all,
)
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

ASIDE: Final = ".commit"
INTENT: Final = "intent.json"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What a decided change still has to do; paths are below the folder, with `/`.

    Attributes:
        move: files that go elsewhere in the folder, as (from, to); `to` is a new name.
        remove: files that go.
        put: files that get new contents, as (path, name of the contents written aside).
        format: of this file.
    """

    move: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    put: tuple[tuple[str, str], ...] = ()
    format: int = 1


class CommitFolder:
    """A folder whose files change together. Every method blocks; one call at a time.

    Args:
        path: the folder.
    """

    __slots__ = ("_aside", "_intent", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path / ASIDE
        self._intent = self._aside / INTENT

    def recover(self) -> bool:
        """Bring a change to its end that was decided, and throw away what never was.

        Returns:
            Whether there was one to bring to its end.

        Raises:
            StoreUnavailableError: that failed; names the file and the reason.
        """
        with _named(self._path):
            self._aside.mkdir(parents=True, exist_ok=True)
            decided = self._intent.exists()
            if decided:
                self._carry_out(self._read_intent())
            for left in self._aside.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        return decided

    def commit(
        self,
        put: Mapping[str, bytes],
        remove: Iterable[str] = (),
        move: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Change files together. When it returns the change is durable.

        Args:
            put: by path below the folder, the contents that a file gets.
            remove: files that go; one that is not there is none too many.
            move: files that go elsewhere, as (from, to); happens first.

        Raises:
            StoreUnavailableError: nothing has changed; names the file and the reason.
        """
        # A change that could not be brought to its end has to be before there is another.
        if self._intent.exists():
            self.recover()
        intent = self._decide(put, tuple(remove), tuple(move))
        try:
            with _named(self._path):
                self._carry_out(intent)
        except StoreUnavailableError as error:
            # It is decided and durable: the next change, or the next start, carries on from here.
            log.warning("a change is on disk, but not all of its files are in place: %s", error)

    def _read_intent(self) -> Intent:
        try:
            return msgspec.json.decode(self._intent.read_bytes(), type=Intent)
        except msgspec.MsgspecError as error:
            raise StoreUnavailableError(
                f"{self._intent}: the change that was under way cannot be read: {error}; restore"
                " the folder from a backup, or remove this file to do without the change"
            ) from error

    def _decide(
        self,
        put: Mapping[str, bytes],
        remove: tuple[str, ...],
        move: tuple[tuple[str, str], ...],
    ) -> Intent:
        """Write contents aside and then the intent: the change is durable, or there is none."""
        names = {path: f"{number:06d}" for number, path in enumerate(put)}
        intent = Intent(
            move=move,
            remove=tuple(path for path in remove if path not in names),
            put=tuple(names.items()),
        )
        try:
            with _named(self._path):
                self._aside.mkdir(exist_ok=True)
                for path in (*put, *(to for _, to in move)):
                    (self._path / path).parent.mkdir(parents=True, exist_ok=True)
                for path, name in names.items():
                    _write(self._aside / name, put[path])
                fsync_dir(self._aside)
                atomic_write(self._intent, msgspec.json.encode(intent))
        except StoreUnavailableError:
            # What was written aside may go only once it is certain that no intent asks for it.
            with contextlib.suppress(OSError):
                self._intent.unlink(missing_ok=True)
                fsync_dir(self._aside)
                for name in names.values():
                    (self._aside / name).unlink(missing_ok=True)
            raise
        return intent

    def _carry_out(self, intent: Intent) -> None:
        """Do what was decided; what an earlier attempt did already is left as it is."""
        touched = []
        for source, to in intent.move:
            touched += [self._path / source, self._path / to]
            if not (self._path / to).exists() and (self._path / source).exists():
                (self._path / to).parent.mkdir(parents=True, exist_ok=True)
                (self._path / source).replace(self._path / to)
        for path in intent.remove:
            touched.append(self._path / path)
            touched[-1].unlink(missing_ok=True)
        for path, name in intent.put:
            touched.append(self._path / path)
            if (self._aside / name).exists():
                touched[-1].parent.mkdir(parents=True, exist_ok=True)
                (self._aside / name).replace(touched[-1])
        folders = {above for path in touched for above in path.parents}
        # The deepest first, so that a folder that goes is gone when the one above is forced out.
        for folder in sorted(folders, reverse=True):
            if folder.is_relative_to(self._path):
                _settle(folder)
        self._intent.unlink()
        fsync_dir(self._aside)


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the file.

    Raises:
        StoreUnavailableError: in its place.
    """
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or folder
        raise StoreUnavailableError(
            f"{place}: cannot be changed: {error.strerror or error}"
        ) from error


def _write(path: Path, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
        try:
            write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise unavailable(path, "cannot be written", error) from error


def _settle(folder: Path) -> None:
    """Make the names in a folder durable; one that is empty goes."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        fsync_dir(folder)
