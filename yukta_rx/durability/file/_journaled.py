"""A small state in memory that is made again from a journal of its changes. Feature: DUR-05."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.file._quarantine import Quarantine
from yukta_rx.errors import BadRequestError, StoreUnavailableError, YuktaError
from yukta_rx.model import codec
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

T = TypeVar("T")

SLACK: Final = 1000
"""Lines beyond twice those that are needed at which a journal is rewritten."""


NO_CHANGE: Final = (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError)
"""What a state raises about a value that is no change."""


class State(Protocol):
    """What is kept in memory. Nothing in it may depend on anything but the changes."""

    def apply(self, change: Mapping[str, Any]) -> Any:
        """Make a change, as it was put or as it was read back, and return what it brings about.

        Raises:
            YuktaError: it brings nothing about, for a reason that its author should know.
            Exception: this is no change; see `NO_CHANGE`.
        """

    def needed(self) -> int:
        """How many changes it takes to make the state as it is now."""

    def changes(self) -> Iterable[Mapping[str, Any]]:
        """These changes. The state as it is now: it may go on while they are read in a thread."""


class Journaled:
    """A state, its journal, and the order between them.

    A change is a plain value; it is written first and made once it is on disk, in the order in
    which it was put. So whoever gets an answer has one that lasts, a change that could not be
    written was never made, and a state that is read back is the one that was there. Changes that
    wait share one write.

    Args:
        path: the journal.
        store: the store that it belongs to, as its setting calls it.
        state: what the changes are made to.
        meters: where lines are counted that cannot be read.
        slack: lines beyond twice those that are needed at which the journal is rewritten.
    """

    def __init__(
        self,
        path: Path,
        store: str,
        state: State,
        *,
        meters: Meters | None = None,
        slack: int = SLACK,
    ) -> None:
        self._journal = Journal(path)
        self._store = store
        self._state = state
        self._quarantine = Quarantine(path, store, meters)
        self._slack = slack
        self._enough = slack
        self._waiting: Counter[str] = Counter()
        self._tasks: Tasks | None = None

    async def start(self) -> None:
        """Read the journal.

        Raises:
            StoreUnavailableError: it cannot be read or written; names the file and the reason.
        """
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        number = 0

        def take(line: bytes) -> None:
            nonlocal number
            number += 1
            if (fault := self._replayed(line)) is not None:
                self._quarantine.add(f"line {number}", line, fault)

        await self._journal.open_with(take)
        try:
            await self._quarantine.keep()
            if self._quarantine.found or self._garbage():
                await self._journal.rewrite(self._lines())
        except BaseException:
            await self._journal.close()
            raise

    async def close(self) -> None:
        """Write what waits, and close the journal."""
        if self._tasks is not None:
            await self._tasks.ended()
        await self._journal.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read when the journal was opened."""
        return self._quarantine.found

    def check(self) -> None:
        """Refuse a read while the journal is not open.

        Raises:
            StoreUnavailableError: it is not.
        """
        if not self._journal.opened:
            raise StoreUnavailableError(f"{self._journal.path}: is not open")

    def waits(self, scope: str) -> bool:
        """Whether a change of that scope was put and is not made yet.

        What is known of a scope is certain only if none waits.
        """
        return scope in self._waiting

    async def change(self, scope: str, change: Mapping[str, Any]) -> Any:
        """Write a change, make it, and return what it brings about.

        Args:
            scope: what it is about, for `waits`.
            change: a plain value.

        Raises:
            YuktaError: as the state does.
            UnserialisablePayloadError: it cannot be written exactly; nothing was changed.
            StoreUnavailableError: it could not be written; nothing was changed.
        """
        line = codec.encode(change)
        brought: list[Any] = []
        self._waiting[scope] += 1

        def told(error: BaseException | None) -> None:
            self._waiting[scope] -= 1
            if not self._waiting[scope]:
                del self._waiting[scope]
            if error is None:
                try:
                    # As it will be read back.
                    brought.append(self._state.apply(codec.decode(line)))
                finally:
                    self._tidy()

        await asyncio.shield(self._journal.append([line], told))
        return brought[0]

    # -- parts

    def _replayed(self, line: bytes) -> str | None:
        """Make a change that was read; why that cannot be."""
        try:
            self._state.apply(codec.decode(line))
        except BadRequestError as error:
            return error.detail
        except YuktaError:
            # It brought nothing about then, either.
            return None
        except NO_CHANGE as error:
            return f"this is no change of the store of {self._store}: {error!r}"
        return None

    def _garbage(self) -> bool:
        if self._journal.lines <= self._enough:
            return False
        # Counting may take a while, so it is not done for each line.
        self._enough = 2 * self._state.needed() + self._slack
        return self._journal.lines > self._enough

    def _lines(self) -> Iterator[bytes]:
        return map(codec.encode, self._state.changes())

    def _tidy(self) -> None:
        """Rewrite the journal if most of it is no longer needed, unless that is under way."""
        if self._tasks is not None and not self._tasks and self._garbage():
            # As they stand now, with the place in the file that they stand for.
            lines, since = self._lines(), self._journal.size
            self._tasks.spawn(self._rewrite(lines, since), f"yukta compacts {self._store}")

    async def _rewrite(self, lines: Iterator[bytes], since: int) -> None:
        try:
            await self._journal.rewrite(lines, since)
        except StoreUnavailableError as error:
            # The file is as it was, and holds more than it has to; the next time it is tried again.
            log.error("the journal of %s could not be made shorter: %s", self._store, error)


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """The result of a method of a memory store, which are all written as coroutines; none waits."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    step.close()
    raise RuntimeError("a change of a state in memory waits for something")
